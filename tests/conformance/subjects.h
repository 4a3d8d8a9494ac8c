// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_CONFORMANCE_SUBJECTS_H_
#define TESTS_CONFORMANCE_SUBJECTS_H_

#include <string>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/fabric/fabric.h"

// The fabrics that the suite runs over, and what of them fabric.h leaves open.
namespace ar_grpc::fabric::testing {

struct Subject {
  std::string name;
  Context* context = nullptr;
  // Another context of the same fabric, or the same one where a process has only one.
  Context* other = nullptr;
  // A key ends with its registration. Not where peers map the memory.
  bool keys_end = true;
  // With a key that has ended the connection breaks.
  bool refusal_breaks = false;
  // What a Get with such a key gives; kUnavailable where the peer only ends the connection.
  StatusCode refusal = StatusCode::kInvalidArgument;
  // wake_fd() polls readable only where the other end had a reason to wake this one.
  bool exact_wakes = true;
  // The one frame of an attachment is a TokenFrame.
  bool by_token = true;
  // One-sided operations now and then fail half-way with kUnavailable though nobody has closed.
  bool flaky = false;
  // How many times fewer rounds the long cases have: a fabric of another speed has another length.
  int fewer_rounds = 1;
  // Run when the program is called without a name.
  bool by_default = true;
};

// loopback, shm and hostile first.
const std::vector<Subject>& Subjects();

inline bool HasStream(const Subject& subject) { return subject.context->capabilities().stream; }

// A file that is linked in adds a subject of its own by a static object of this type.
struct AddedSubject {
  explicit AddedSubject(Subject (*make)());
};

inline Pair Attach(const Subject& subject) { return Attach(*subject.context, *subject.context); }

// As GetNow and PutNow, again where a flaky subject fails.
Status Get(const Subject& subject, Connection& connection, const Key& key, uint64_t offset,
           void* into, size_t size);
Status Put(const Subject& subject, Connection& connection, const Key& key, uint64_t offset,
           const void* from, size_t size);

}  // namespace ar_grpc::fabric::testing

#endif  // TESTS_CONFORMANCE_SUBJECTS_H_
