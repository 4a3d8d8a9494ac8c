// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_SEEDS_H_
#define TESTS_GRPC_SUITES_SEEDS_H_

#include <string>

namespace ar_grpc::testing {

// Runs the case "seeds": what gRPC draws differs from one channel to the next. false: another name.
bool RunSeedsCase(const std::string& name);

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_SEEDS_H_
