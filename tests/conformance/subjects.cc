// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/conformance/subjects.h"

#include "tests/conformance/hostile.h"
#include "third_party/ar_grpc/fabric/loopback/loopback.h"
#include "third_party/ar_grpc/fabric/shm/shm.h"

namespace ar_grpc::fabric::testing {
namespace {

Subject Loopback() {
  static Context* const other = loopback::New().release();
  Subject subject;
  subject.name = "loopback";
  subject.context = &loopback::Get();
  subject.other = other;
  return subject;
}

Subject Shm() {
  Subject subject;
  subject.name = "shm";
  subject.context = subject.other = &shm::Get();
  subject.keys_end = false;
  return subject;
}

Subject Hostile() {
  static Context* const context = hostile::New().release();
  static Context* const other = hostile::New().release();
  Subject subject;
  subject.name = "hostile";
  subject.context = context;
  subject.other = other;
  subject.flaky = true;
  return subject;
}

std::vector<Subject (*)()>& Makers() {
  static auto* const makers = new std::vector<Subject (*)()>{Loopback, Shm, Hostile};
  return *makers;
}

Status Retried(const Subject& subject, const Connection& connection,
               const std::function<Status()>& operation) {
  while (true) {
    Status status = operation();
    const bool flaw = subject.flaky && status.code() == StatusCode::kUnavailable;
    if (!flaw || connection.closed()) return status;
  }
}

}  // namespace

const std::vector<Subject>& Subjects() {
  static const auto* const subjects = [] {
    auto* const made = new std::vector<Subject>;
    for (Subject (*const make)() : Makers()) made->push_back(make());
    return made;
  }();
  return *subjects;
}

AddedSubject::AddedSubject(Subject (*make)()) { Makers().push_back(make); }

Status Get(const Subject& subject, Connection& connection, const Key& key, uint64_t offset,
           void* into, size_t size) {
  return Retried(subject, connection, [&] { return GetNow(connection, key, offset, into, size); });
}

Status Put(const Subject& subject, Connection& connection, const Key& key, uint64_t offset,
           const void* from, size_t size) {
  return Retried(subject, connection, [&] { return PutNow(connection, key, offset, from, size); });
}

}  // namespace ar_grpc::fabric::testing
