// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What gRPC's tests want of test/core/util/test_config.h. Its own implementation installs absl's
// failure signal handler, which the base wheel does not have; this one says which case runs.

#include "test/core/util/test_config.h"

#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpc/support/time.h>

#include <cstdio>
#include <cstring>

namespace {

// The tests' own lines on standard output, one each and at once: the last one names the case that
// did not end. Errors of gRPC itself go to standard error.
void Print(gpr_log_func_args* args) {
  const bool of_test = std::strstr(args->file, "test/core/") != nullptr;
  if (!of_test && args->severity < GPR_LOG_SEVERITY_ERROR) return;
  FILE* const to = of_test ? stdout : stderr;
  std::fprintf(to, "%s\n", args->message);
  std::fflush(to);
}

}  // namespace

gpr_timespec grpc_timeout_seconds_to_deadline(int64_t time_s) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(time_s, GPR_TIMESPAN));
}

void grpc_test_init(int*, char**) {
  gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);
  gpr_set_log_function(Print);
}

bool grpc_wait_until_shutdown(int64_t time_s) {
  const gpr_timespec deadline = grpc_timeout_seconds_to_deadline(time_s);
  while (grpc_is_initialized()) {
    if (gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), deadline) > 0) return false;
    gpr_sleep_until(grpc_timeout_milliseconds_to_deadline(1));
  }
  return true;
}

gpr_timespec grpc_timeout_milliseconds_to_deadline(int64_t time_ms) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(time_ms, GPR_TIMESPAN));
}

namespace grpc::testing {

TestEnvironment::TestEnvironment(int* argc, char** argv) { grpc_test_init(argc, argv); }

TestEnvironment::~TestEnvironment() {
  GPR_ASSERT(grpc_wait_until_shutdown(10));
  std::puts("gRPC is shut down");
}

}  // namespace grpc::testing
