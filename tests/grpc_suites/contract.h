// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_CONTRACT_H_
#define TESTS_GRPC_SUITES_CONTRACT_H_

#include <string>

namespace ar_grpc::testing {

// Runs one case of what an endpoint promises and upstream's tests leave out. A failed check ends
// the program. false: no case has this name.
bool RunContractCase(const std::string& fabric, const std::string& name);

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_CONTRACT_H_
