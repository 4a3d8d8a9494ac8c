// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_SHARED_CONNECTION_H_
#define TESTS_GRPC_SUITES_SHARED_CONNECTION_H_

#include <string>

namespace ar_grpc::testing {

// Completion queues that share a connection. "shared-rest" counts what the queue without a call is
// woken; "shared-stuck" has a queue's thread not come back, "shared-pair" one of two threads,
// "shared-crowd" any of several queues' for a while, and "shared-accepted" that of a server's queue
// that did not accept the connection. False for another name.
bool RunSharedConnectionCase(const std::string& name);

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_SHARED_CONNECTION_H_
