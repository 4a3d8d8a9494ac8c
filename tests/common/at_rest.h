// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_COMMON_AT_REST_H_
#define TESTS_COMMON_AT_REST_H_

#include <chrono>
#include <cstddef>
#include <thread>

namespace ar_grpc::testing {

// What count() says once it has said the same for as long as `still`. A case begins with that:
// what the cases before it have closed may still be on its way out.
template <typename Count>
size_t AtRest(const Count& count, std::chrono::steady_clock::duration still) {
  size_t last = count();
  auto since = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - since < still) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const size_t now = count();
    if (now == last) continue;
    last = now;
    since = std::chrono::steady_clock::now();
  }
  return last;
}

}  // namespace ar_grpc::testing

#endif  // TESTS_COMMON_AT_REST_H_
