// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/closed_in_child.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "third_party/ar_grpc/base/os.h"

namespace ar_grpc::fabric::verbs {
namespace {

constexpr int kFree = 0;

// Each the descriptor and 1, so that they are free from the beginning. Read in a child, where no
// lock can be had: a place changes by one store.
std::array<std::atomic<int>, ClosedInChild::kMost> places;

std::mutex forks;

// In the parent, just before: the libraries do not tell where they map what.
void BeforeFork() {
  forks.lock();
  const bool none = std::all_of(places.begin(), places.end(),
                                [](const auto& place) { return place.load() == kFree; });
  if (none) return;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/infiniband/uverbs") == std::string::npos) continue;
    uintptr_t begin = 0;
    uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTFORK);
  }
}

void InParent() { forks.unlock(); }

void InChild() {
  for (std::atomic<int>& place : places) {
    if (const int taken = place.exchange(kFree); taken != kFree) close(taken - 1);
  }
  forks.unlock();
}

}  // namespace

std::unique_lock<std::mutex> HoldOffForks() {
  // A fork takes the locks of its handlers in the reverse of this order, so this one before those
  // that every thread needs: a sick device may have it held for long. The child of a fork that is
  // under way at this very moment keeps what the parent then opens.
  static const int registered = pthread_atfork(BeforeFork, InParent, InChild);
  static_cast<void>(registered);
  return std::unique_lock<std::mutex>(forks);
}

void ClosedInChild::Set(int fd) {
  Reset();
  for (std::atomic<int>& place : places) {
    int free = kFree;
    if (!place.compare_exchange_strong(free, fd + 1)) continue;
    place_ = &place;
    fork_count_ = ForkCount();
    return;
  }
}

void ClosedInChild::Reset() {
  // A child's place is free already, or another's.
  if (place_ != nullptr && fork_count_ == ForkCount()) place_->store(kFree);
  place_ = nullptr;
}

}  // namespace ar_grpc::fabric::verbs
