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

constexpr int kFree = -1;

// Read in a child, where no lock can be had: each place changes by one store.
std::array<std::atomic<int>, ClosedInChild::kMost>& Places() {
  static auto* const places = [] {
    static std::array<std::atomic<int>, ClosedInChild::kMost> made;
    for (std::atomic<int>& place : made) place.store(kFree);
    return &made;
  }();
  return *places;
}

std::mutex& Forks() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

// In the parent, just before: the libraries do not tell where they map what.
void BeforeFork() {
  Forks().lock();
  const bool none = std::all_of(Places().begin(), Places().end(),
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

void InParent() { Forks().unlock(); }

void InChild() {
  for (std::atomic<int>& place : Places()) {
    if (const int fd = place.exchange(kFree); fd != kFree) close(fd);
  }
  Forks().unlock();
}

}  // namespace

std::unique_lock<std::mutex> HoldOffForks() {
  static const int registered = pthread_atfork(BeforeFork, InParent, InChild);
  static_cast<void>(registered);
  return std::unique_lock<std::mutex>(Forks());
}

void ClosedInChild::Set(int fd) {
  Reset();
  for (std::atomic<int>& place : Places()) {
    int free = kFree;
    if (!place.compare_exchange_strong(free, fd)) continue;
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
