// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_BASE_WORK_QUEUE_H_
#define THIRD_PARTY_AR_GRPC_BASE_WORK_QUEUE_H_

#include <pthread.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

namespace ar_grpc {

// Tasks for a few threads, which are started when they are first needed and then stay. A task is
// never lost: where no thread is to be had yet, the reactor tries again every 100 ms; where it has
// none either, the next call of Run does. Lives until the process ends; a forked child begins with
// an empty queue and no threads. Thread-safe.
class WorkQueue {
 public:
  // `name` has at most 15 characters.
  WorkQueue(const char* name, int most_threads);
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;

  // Runs `task` soon, in the order of the calls as far as there are threads.
  void Run(std::function<void()> task);

 private:
  // What the threads share. A child leaves the parent's behind: a thread that it does not have may
  // hold the lock.
  struct State {
    std::mutex mu;
    // Not std::condition_variable: its wait asks for a newer libstdc++ than all else here.
    pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
    std::deque<std::function<void()>> tasks;
    int threads = 0;
    int idle = 0;
    bool retries = false;  // the reactor will try to start a thread
  };

  State* Current();
  // Requires state->mu.
  void Grow(State* state);
  static void Work(State* state);

  const char* const name_;
  const int most_threads_;
  State* state_;         // guarded by ForkSafeMutex
  uint32_t fork_count_;  // guarded by ForkSafeMutex
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_BASE_WORK_QUEUE_H_
