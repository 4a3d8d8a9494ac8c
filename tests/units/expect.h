// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_UNITS_EXPECT_H_
#define TESTS_UNITS_EXPECT_H_

#include <cstdio>

// For tests that show all that is wrong in one run: what does not hold is told and counted, and
// main ends with `failures == 0 ? 0 : 1`. (tests/conformance/testing.h ends at the first.)
inline int failures = 0;

inline void Expect(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "line %d: %s does not hold\n", line, what);
  ++failures;
}
#define EXPECT(condition) Expect(condition, #condition, __LINE__)

#endif  // TESTS_UNITS_EXPECT_H_
