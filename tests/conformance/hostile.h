// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_CONFORMANCE_HOSTILE_H_
#define TESTS_CONFORMANCE_HOSTILE_H_

#include <cstdint>
#include <memory>

#include "third_party/ar_grpc/fabric/fabric.h"

// A fabric that does what fabric.h allows and nobody hopes for: loopback, whose one-sided
// operations end late, out of order and on other threads. They go on after Close, whose `done`
// waits for them, and some of them fail half-way, with the target partly overwritten.
namespace ar_grpc::fabric::hostile {

// Its streams say so, and keep to nothing.
inline constexpr uint64_t kStreamWindow = uint64_t{128} << 10;

struct Options {
  int threads = 3;
  int largest_delay_us = 300;   // of one operation
  int post_us = 0;              // how long posting a message takes
  int failing_percent = 5;      // of operations, with kUnavailable
  bool failure_closes = false;  // as where one error takes the whole connection with it
};

// To be kept until its connections are gone.
std::unique_ptr<Context> New(const Options& options = {});

}  // namespace ar_grpc::fabric::hostile

#endif  // TESTS_CONFORMANCE_HOSTILE_H_
