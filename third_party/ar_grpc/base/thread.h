// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_BASE_THREAD_H_
#define THIRD_PARTY_AR_GRPC_BASE_THREAD_H_

#include <pthread.h>

#include <functional>
#include <utility>

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc {

// A thread that is waited for when this goes, unless it was detached. std::thread's constructor
// throws where the system refuses a thread, and an exception that nobody expects ends the process.
class Thread {
 public:
  Thread() = default;
  Thread(Thread&& other) noexcept
      : id_(other.id_), running_(std::exchange(other.running_, false)) {}
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { Join(); }

  // Returns once the thread has ended; at once where there is none.
  void Join();
  // Lets it run on its own: nobody waits for it.
  void Detach();

 private:
  friend StatusOr<Thread> StartThread(const char* name, std::function<void()> body);
  explicit Thread(pthread_t id) : id_(id), running_(true) {}

  pthread_t id_{};
  bool running_ = false;
};

// Runs `body` in a thread of its own, in which all signals are blocked: the process's are for its
// own threads. `name` has at most 15 characters. kResourceExhausted where no thread is to be had
// (a limit of processes or memory); `body` is then destroyed without having run.
StatusOr<Thread> StartThread(const char* name, std::function<void()> body);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_BASE_THREAD_H_
