// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#ifndef TESTS_CONFORMANCE_SUITE_H_
#define TESTS_CONFORMANCE_SUITE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/conformance/subjects.h"
#include "tests/conformance/testing.h"

// What fabric.h promises, by topic.
namespace ar_grpc::fabric::testing {

std::vector<Case> StreamCases(const Subject& subject);
std::vector<Case> MemoryCases(const Subject& subject);
std::vector<Case> CloseCases(const Subject& subject);
std::vector<Case> AttachCases(const Subject& subject);

struct CaseOf {
  const char* name;
  void (*test)(const Subject& subject);
  bool applies = true;  // to the subject
};
inline std::vector<Case> CasesOf(const Subject& subject, const std::vector<CaseOf>& cases) {
  std::vector<Case> bound;
  for (const CaseOf& one : cases) {
    if (one.applies) bound.push_back({one.name, [&subject, test = one.test] { test(subject); }});
  }
  return bound;
}

// Sends `total` bytes in pieces of random sizes and checks as many that come, on one thread that
// sleeps whenever it can do neither.
void Exchange(Connection& connection, uint64_t total, uint64_t send_seed, uint64_t receive_seed);

// That the connection works: something gets from one end to the other.
void CheckCarries(const Subject& subject, Connection& from, Connection& to);

inline constexpr size_t kSegmentSize = size_t{kSlowdown > 1 ? 2 : 4} << 20;

// A segment of kSegmentSize bytes of the pattern 7, registered as a whole.
struct Shared {
  std::shared_ptr<memory::Segment> segment;
  std::shared_ptr<Registration> registration;
};
Shared Share(Context& context, Access access = Access::kRead, size_t size = kSegmentSize);

}  // namespace ar_grpc::fabric::testing

#endif  // TESTS_CONFORMANCE_SUITE_H_
