// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/unique_id.h"

#include <pthread.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace ar_grpc {
namespace {

uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t RandomStart() {
  uint64_t start = 0;
  if (getrandom(&start, sizeof(start), 0) == sizeof(start)) return start;
  // No entropy source (an old sandbox): two processes still differ in pid or start time.
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return Mix(static_cast<uint64_t>(now.tv_sec) * 1000000000u + now.tv_nsec) ^
         Mix(static_cast<uint64_t>(getpid()) << 32);
}

// Never destroyed: threads may draw ids while the process ends.
std::atomic<uint64_t>& Next() {
  static std::atomic<uint64_t>* const next = new std::atomic<uint64_t>(RandomStart());
  return *next;
}

// A forked child must not repeat its parent's ids.
void StartAnew() { Next().store(RandomStart(), std::memory_order_relaxed); }

}  // namespace

int64_t UniqueId() {
  std::atomic<uint64_t>& next = Next();
  [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, StartAnew);
  uint64_t id = 0;
  while (id == 0) id = Mix(next.fetch_add(1, std::memory_order_relaxed));
  return static_cast<int64_t>(id);
}

}  // namespace ar_grpc
