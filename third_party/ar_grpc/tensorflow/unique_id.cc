// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/unique_id.h"

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

// A forked child must not repeat its parent's ids, so the start is drawn anew when the pid changes.
struct Sequence {
  std::atomic<uint64_t> next{RandomStart()};
  std::atomic<pid_t> owner{getpid()};
};

}  // namespace

int64_t UniqueId() {
  static Sequence* const sequence = new Sequence;
  pid_t owner = sequence->owner.load(std::memory_order_relaxed);
  const pid_t self = getpid();
  if (owner != self && sequence->owner.compare_exchange_strong(owner, self)) {
    sequence->next.store(RandomStart(), std::memory_order_relaxed);
  }
  uint64_t id = 0;
  while (id == 0) id = Mix(sequence->next.fetch_add(1, std::memory_order_relaxed));
  return static_cast<int64_t>(id);
}

}  // namespace ar_grpc
