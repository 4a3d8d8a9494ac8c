// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_BASE_REACTOR_H_
#define THIRD_PARTY_AR_GRPC_BASE_REACTOR_H_

#include <cstdint>
#include <functional>

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc {

// One thread that waits for descriptors and deadlines; callbacks run on it and must not block.
class Reactor {
 public:
  // The process's own; started at first use, started anew in a forked child.
  static Reactor& Get();
  virtual ~Reactor() = default;
  // Calls `ready` whenever `fd` is readable or hung up, until Remove(fd).
  virtual Status Add(int fd, std::function<void()> ready) = 0;
  // After this returns `ready` does not run any more. On the reactor's own thread, too.
  virtual void Remove(int fd) = 0;
  // Runs `task` on the reactor's thread, not before `delay_ms`; returns an id for Cancel.
  // 0: the thread could not be started (no descriptors, no threads), and `task` will not run.
  virtual uint64_t RunAfter(int delay_ms, std::function<void()> task) = 0;
  // false: it ran, or runs now.
  virtual bool Cancel(uint64_t id) = 0;
  // How often the thread has come back from waiting; what wakes it in vain shows here.
  virtual uint64_t rounds() const = 0;
};

// Runs `task` on the reactor's thread and waits until it has run: no callback runs beside it. At
// once when called on that thread.
void RunOnReactor(std::function<void()> task);

// Runs `task` on the reactor's thread, soon. kResourceExhausted when that thread cannot be started.
Status StartOnReactor(std::function<void()> task);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_BASE_REACTOR_H_
