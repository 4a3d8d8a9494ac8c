// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_QUEUE_TIMER_CASES_H_
#define TESTS_GRPC_SUITES_QUEUE_TIMER_CASES_H_

#include <string>

namespace ar_grpc::testing {

// "queue-timer"; false for another name.
bool RunQueueTimerCase(const std::string& name);

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_QUEUE_TIMER_CASES_H_
