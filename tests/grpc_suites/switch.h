// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_SWITCH_H_
#define TESTS_GRPC_SUITES_SWITCH_H_

#include <string>

namespace ar_grpc::testing {

// Channels and servers in this process, with AR-gRPC on and off beside each other, and what their
// handshakes promise. Runs without Pollset. false: not this name.
bool RunSwitchCase(const std::string& fabric, const std::string& name);

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_SWITCH_H_
