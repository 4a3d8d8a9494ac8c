// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/unique_id.h"

#include <pthread.h>

#include <atomic>

#include "third_party/ar_grpc/base/random.h"

namespace ar_grpc {
namespace {

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Never destroyed: threads may draw ids while the process ends.
std::atomic<uint64_t>& Next() {
  static std::atomic<uint64_t>* const next = new std::atomic<uint64_t>(RandomSeed());
  return *next;
}

// A forked child must not repeat its parent's ids.
void StartAnew() { Next().store(RandomSeed(), std::memory_order_relaxed); }

}  // namespace

int64_t UniqueId() {
  std::atomic<uint64_t>& next = Next();
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, StartAnew);
  uint64_t id = 0;
  while (id == 0) id = Mix(next.fetch_add(1, std::memory_order_relaxed));
  return static_cast<int64_t>(id);
}

}  // namespace ar_grpc
