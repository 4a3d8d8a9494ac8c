// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_DEADLINE_TIMER_H_
#define THIRD_PARTY_AR_GRPC_GRPC_DEADLINE_TIMER_H_

#include <grpc/support/port_platform.h>

#include <functional>
#include <memory>

#include "third_party/ar_grpc/protocol/handshake.h"

namespace ar_grpc {

// A deadline that moves. Not thread-safe: one serializer runs all of it, but for the callback.
class DeadlineTimer {
 public:
  ~DeadlineTimer() { Cancel(); }

  // `on_time` runs once in a thread of gRPC's, about at `deadline`, instead of what was set
  // before; Instant::max(): nothing runs. One that was just about to run still may, so it must look
  // at the time. It is destroyed after it has run, or soon after Cancel.
  void Set(protocol::Instant deadline, std::function<void()> on_time);
  void Cancel();

 private:
  struct Armed;

  std::shared_ptr<Armed> armed_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_DEADLINE_TIMER_H_
