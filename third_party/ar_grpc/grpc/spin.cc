// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/spin.h"

#include <poll.h>
#include <sched.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>

#include "third_party/ar_grpc/base/limits.h"
#include "third_party/ar_grpc/base/log.h"

namespace ar_grpc {
namespace {

// A core must be left for each process of a pair and its work: with two cores spinning made steps
// of many tensors slower.
constexpr int64_t kDefaultUs = 100;
constexpr int kFewestCores = 4;
constexpr int64_t kMostUs = 10000;
constexpr int64_t kNsPerMs = 1000000;
// Descriptors above this are polled without spinning.
constexpr int kMostFds = 65536;

std::array<std::atomic<bool>, kMostFds> watched;
std::atomic<int64_t> last_moved_ns{0};
// One thread a process: the others' cores are for the work that comes.
std::atomic<bool> spinning{false};

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1000000000} + now.tv_nsec;
}

int64_t LimitNs() {
  static const int64_t limit = [] {
    const char* const text = std::getenv("AR_GRPC_SPIN_US");
    const int64_t usual = UsableCores() >= kFewestCores ? kDefaultUs * 1000 : 0;
    if (text == nullptr || *text == '\0') return usual;
    char* end = nullptr;
    const long long us = std::strtoll(text, &end, 10);
    if (*end == '\0' && us >= 0 && us <= kMostUs) return int64_t{us} * 1000;
    Log(Severity::kError, std::string("AR_GRPC_SPIN_US=") + text +
                              " is not a number of microseconds from 0 to 10000; it is ignored");
    return usual;
  }();
  return limit;
}

bool Watches(const pollfd* fds, nfds_t count) {
  for (nfds_t i = 0; i < count; ++i) {
    if ((fds[i].events & POLLIN) != 0 && fds[i].fd >= 0 && fds[i].fd < kMostFds &&
        watched[fds[i].fd].load(std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

}  // namespace

int SpinAndPoll(pollfd* fds, nfds_t count, int timeout_ms) {
  if (timeout_ms == 0 || LimitNs() == 0) return poll(fds, count, timeout_ms);
  int64_t now = NowNs();
  const int64_t end =
      timeout_ms < 0 ? std::numeric_limits<int64_t>::max() : now + timeout_ms * kNsPerMs;
  if (now < last_moved_ns.load(std::memory_order_relaxed) + LimitNs() && Watches(fds, count) &&
      !spinning.exchange(true, std::memory_order_acquire)) {
    int ready = 0;
    // Activity of other threads prolongs it, though not beyond the caller's own deadline.
    while (ready == 0 && now < end &&
           now < last_moved_ns.load(std::memory_order_relaxed) + LimitNs()) {
      ready = poll(fds, count, 0);
      if (ready == 0) sched_yield();
      now = NowNs();
    }
    spinning.store(false, std::memory_order_release);
    if (ready != 0) return ready;
    // Rounded up: the caller's clock is not to be early.
    if (timeout_ms > 0) {
      timeout_ms = static_cast<int>((std::max<int64_t>(end - now, 0) + kNsPerMs - 1) / kNsPerMs);
    }
  }
  return poll(fds, count, timeout_ms);
}

void SpinFor(int fd) {
  if (fd < kMostFds) watched[fd].store(true, std::memory_order_relaxed);
}

void SpinNoMoreFor(int fd) {
  if (fd < kMostFds) watched[fd].store(false, std::memory_order_relaxed);
}

void SpinFromNow() {
  if (LimitNs() > 0) last_moved_ns.store(NowNs(), std::memory_order_relaxed);
}

}  // namespace ar_grpc
