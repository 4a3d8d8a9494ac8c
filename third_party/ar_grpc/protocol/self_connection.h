// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_SELF_CONNECTION_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_SELF_CONNECTION_H_

#include <chrono>
#include <memory>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::protocol {

// Both ends of a connection within this process.
struct SelfConnection {
  std::unique_ptr<fabric::Connection> server;
  std::unique_ptr<fabric::Connection> client;
};

// Attaches `context` to itself. kDeadlineExceeded when that is not over by `deadline`, as on the
// reactor's thread, which a fabric may need for it.
StatusOr<SelfConnection> ConnectToSelf(fabric::Context* context,
                                       std::chrono::steady_clock::time_point deadline);

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_SELF_CONNECTION_H_
