// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/queue_timer_cases.h"

#include <grpcpp/completion_queue.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/grpc/queue_timer.h"

namespace ar_grpc::testing {
namespace {

using fabric::testing::Check;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

// A thread that works on a queue until that ends, and hears of no event.
class Worker {
 public:
  ~Worker() {
    if (thread_.joinable()) End();
  }
  grpc::CompletionQueue* queue() { return &queue_; }
  std::thread::id id() const { return thread_.get_id(); }
  void End() {
    queue_.Shutdown();
    thread_.join();
  }

 private:
  grpc::CompletionQueue queue_;
  std::thread thread_{[this] {
    void* tag;
    bool ok;
    Check(!queue_.Next(&tag, &ok), "no event but the queue's end");
  }};
};

void RunsOnTheQueuesThread() {
  Worker worker;
  std::atomic<bool> ran{false};
  std::thread::id where;
  const Clock::time_point began = Clock::now();
  QueueTimer* const timer = QueueTimer::Create(worker.queue(), [&] {
    where = std::this_thread::get_id();
    ran = true;
  });
  timer->Start(milliseconds(100));
  while (!ran) std::this_thread::sleep_for(milliseconds(1));
  Check(where == worker.id(), "on the queue's thread");
  Check(Clock::now() - began >= milliseconds(100), "not before its time");
}

void RunsSoonWhenCancelled() {
  Worker worker;
  std::atomic<int> ran{0};
  QueueTimer* const timer = QueueTimer::Create(worker.queue(), [&] { ++ran; });
  const Clock::time_point began = Clock::now();
  timer->Start(seconds(60));
  timer->Cancel();
  while (ran == 0) std::this_thread::sleep_for(milliseconds(1));
  Check(Clock::now() - began < seconds(30), "long before its time");
  worker.End();
  Check(ran == 1, "once");
}

void HoldsTheQueue() {
  Worker worker;
  bool first = false;
  bool second = false;
  QueueTimer* const timer = QueueTimer::Create(worker.queue(), [&] {
    first = true;
    // As a call that is begun here: not refused, though the queue is shut down.
    QueueTimer* const next = QueueTimer::Create(worker.queue(), [&] { second = true; });
    Check(next != nullptr, "the queue is held");
    next->Start(milliseconds(100));
  });
  timer->Start(milliseconds(100));
  worker.End();
  Check(first && second, "the queue's end waits for both");
  Check(QueueTimer::Create(worker.queue(), [] {}) == nullptr, "none on a queue that has ended");
}

}  // namespace

bool RunQueueTimerCase(const std::string& name) {
  if (name != "queue-timer") return false;
  RunsOnTheQueuesThread();
  RunsSoonWhenCancelled();
  HoldsTheQueue();
  std::printf("ok %s\n", name.c_str());
  return true;
}

}  // namespace ar_grpc::testing
