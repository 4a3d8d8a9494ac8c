// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_VERBS_OWN_PAIR_H_
#define TESTS_VERBS_OWN_PAIR_H_

#include <cstddef>
#include <memory>

#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

// Both ends of a connection in this process, and memory for one to read of the other.
namespace ar_grpc::fabric::verbs::testing {

struct Pair {
  std::unique_ptr<Connection> reader;
  std::unique_ptr<Connection> owner;
};

inline Pair Connected() {
  End server;
  End client;
  const auto accept = Value(Get().Accept(server.events()));
  const auto connect = Value(Get().Connect(client.events()));
  connect->TakeFrame(*server.NextFrame());
  accept->TakeFrame(*client.NextFrame());
  connect->TakeFrame(*server.NextFrame());
  return {Value(client.Take()), Value(server.Take())};
}

// Registered memory with the bytes of ByteAt.
struct Memory {
  explicit Memory(size_t size, Access access = Access::kRead)
      : segment(Value(memory::Segment::Create(size))) {
    for (size_t i = 0; i < size; ++i) segment->data()[i] = ByteAt(i);
    registration = Value(Get().Register(segment, 0, size, access));
  }
  std::shared_ptr<memory::Segment> segment;
  std::shared_ptr<Registration> registration;
};

}  // namespace ar_grpc::fabric::verbs::testing

#endif  // TESTS_VERBS_OWN_PAIR_H_
