// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_DRAINED_H_
#define TESTS_GRPC_SUITES_DRAINED_H_

#include <string>

namespace ar_grpc::testing {

// How a server ends a connection that it drains, told by a client of bare HTTP/2: "late-frames",
// "left-open" or "last-stream". False for another name.
bool RunDrainedCase(const std::string& name);

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_DRAINED_H_
