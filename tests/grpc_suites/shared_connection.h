// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_SHARED_CONNECTION_H_
#define TESTS_GRPC_SUITES_SHARED_CONNECTION_H_

#include <string>

namespace ar_grpc::testing {

// Two completion queues over one connection: "shared-rest" counts what the queue without a call is
// woken, "shared-stuck" has one's thread not come back. False for another name.
bool RunSharedConnectionCase(const std::string& name);

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_SHARED_CONNECTION_H_
