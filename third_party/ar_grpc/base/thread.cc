// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/base/thread.h"

#include <signal.h>

#include <cstring>
#include <memory>
#include <string>

namespace ar_grpc {
namespace {

struct Start {
  const std::string name;
  const std::function<void()> body;
};

void* Run(void* start) {
  const std::unique_ptr<Start> own(static_cast<Start*>(start));
  pthread_setname_np(pthread_self(), own->name.c_str());
  own->body();
  return nullptr;
}

}  // namespace

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this == &other) return *this;
  Join();
  id_ = other.id_;
  running_ = std::exchange(other.running_, false);
  return *this;
}

void Thread::Join() {
  if (std::exchange(running_, false)) pthread_join(id_, nullptr);
}

void Thread::Detach() {
  if (std::exchange(running_, false)) pthread_detach(id_);
}

StatusOr<Thread> StartThread(const char* name, std::function<void()> body) {
  auto start = std::make_unique<Start>(Start{name, std::move(body)});
  // A new thread inherits the mask of the thread that makes it, so it never runs with another.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t id;
  const int error = pthread_create(&id, nullptr, Run, start.get());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) {
    return Status(StatusCode::kResourceExhausted,
                  std::string("the thread '") + name + "' could not be started: " +
                      std::strerror(error) + "; look at ulimit -u and the cgroup's pids.max");
  }
  (void)start.release();  // Run owns it
  return Thread(id);
}

}  // namespace ar_grpc
