// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_HANDSHAKE_CASES_H_
#define TESTS_GRPC_SUITES_HANDSHAKE_CASES_H_

#include <string>

namespace ar_grpc::testing {

// Handshakes whose ends go in the midst of them, and what the reactor's thread has to do with them.
// Runs without Pollset. false: not this name.
bool RunHandshakeCase(const std::string& fabric, const std::string& name);

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_HANDSHAKE_CASES_H_
