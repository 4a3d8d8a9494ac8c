// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_UNITS_DECODING_H_
#define TESTS_UNITS_DECODING_H_

#include <string>
#include <string_view>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc::testing {

// A message that is cut short anywhere, or has a byte more than its own, is not decoded.
template <typename Decoded>
void IsRefused(StatusOr<Decoded> (*decode)(std::string_view), const std::string& whole) {
  using fabric::testing::CheckCode;
  for (size_t size = 0; size < whole.size(); ++size) {
    CheckCode(decode(whole.substr(0, size)).status(), StatusCode::kInvalidArgument, "malformed");
  }
  CheckCode(decode(whole + "x").status(), StatusCode::kInvalidArgument, "malformed");
}

}  // namespace ar_grpc::testing

#endif  // TESTS_UNITS_DECODING_H_
