// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/base/work_queue.h"

#include <utility>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/base/thread.h"

namespace ar_grpc {
namespace {

constexpr int kRetryMs = 100;

}  // namespace

WorkQueue::WorkQueue(const char* name, int most_threads)
    : name_(name), most_threads_(most_threads), state_(new State), fork_count_(ForkCount()) {}

WorkQueue::State* WorkQueue::Current() {
  std::lock_guard<std::mutex> lock(ForkSafeMutex());
  if (ForkCount() != fork_count_) {
    fork_count_ = ForkCount();
    state_ = new State;
  }
  return state_;
}

void WorkQueue::Run(std::function<void()> task) {
  State* const state = Current();
  std::lock_guard<std::mutex> lock(state->mu);
  state->tasks.push_back(std::move(task));
  if (state->idle > 0) {
    pthread_cond_signal(&state->filled);
  }
  // An idle thread may have been promised to an earlier task by now.
  if (static_cast<size_t>(state->idle) < state->tasks.size()) Grow(state);
}

void WorkQueue::Grow(State* state) {
  if (state->threads >= most_threads_) return;
  StatusOr<Thread> thread = StartThread(name_, [state] { Work(state); });
  if (thread.ok()) {
    thread->Detach();
    ++state->threads;
    return;
  }
  if (state->threads > 0 || state->retries) return;
  state->retries = Reactor::Get().RunAfter(kRetryMs, [this, state] {
    std::lock_guard<std::mutex> lock(state->mu);
    state->retries = false;
    if (!state->tasks.empty()) Grow(state);
  }) != 0;
}

void WorkQueue::Work(State* state) {
  std::unique_lock<std::mutex> lock(state->mu);
  for (;;) {
    while (state->tasks.empty()) {
      ++state->idle;
      pthread_cond_wait(&state->filled, state->mu.native_handle());
      --state->idle;
    }
    std::function<void()> task = std::move(state->tasks.front());
    state->tasks.pop_front();
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
  }
}

}  // namespace ar_grpc
