// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/measure.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "third_party/ar_grpc/base/os.h"

namespace ar_grpc::protocol {
namespace {

// Larger than a core's own caches, as tensors that go by rendezvous are.
constexpr size_t kCopyBytes = size_t{4} << 20;
constexpr int kCopies = 5;
constexpr int kWakes = 60;
// What is assumed where nothing can be measured (no descriptor is free).
constexpr double kAssumedWakeUs = 10;
constexpr double kAssumedMessageUs = 2;

double Microseconds(std::chrono::steady_clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

template <typename Work>
double Time(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  // A clock that stood still would divide by zero.
  return std::max(Microseconds(std::chrono::steady_clock::now() - begin), 0.01);
}

double CopyBytesPerUs() {
  const auto from = std::make_unique<uint8_t[]>(kCopyBytes);
  const auto into = std::make_unique<uint8_t[]>(kCopyBytes);
  std::memset(from.get(), 1, kCopyBytes);
  double best = 0;
  for (int i = 0; i < kCopies; ++i) {
    const double us = Time([&] { std::memcpy(into.get(), from.get(), kCopyBytes); });
    best = std::max(best, kCopyBytes / us);
  }
  return best;
}

bool Wait(int fd) {
  uint64_t count = 0;
  return read(fd, &count, sizeof(count)) == sizeof(count);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void MeasureWakes(Figures* figures) {
  figures->wake_us = kAssumedWakeUs;
  figures->message_us = kAssumedMessageUs;
  // They block, unlike the fabrics' own.
  const UniqueFd there(eventfd(0, EFD_CLOEXEC));
  const UniqueFd back(eventfd(0, EFD_CLOEXEC));
  if (there.valid() && back.valid()) {
    std::vector<double> calls;
    for (int i = 0; i < kWakes; ++i)
      calls.push_back(Time([&] {
        WakeUp(there.get());
        Wait(there.get());
      }));
    figures->message_us = Median(calls);
    std::thread other([&] {
      for (int i = 0; i < kWakes && Wait(there.get()); ++i) WakeUp(back.get());
    });
    std::vector<double> rounds;
    for (int i = 0; i < kWakes; ++i)
      rounds.push_back(Time([&] {
        WakeUp(there.get());
        Wait(back.get());
      }));
    other.join();
    figures->wake_us = Median(rounds) / 2;
  }
}

}  // namespace

const Figures& MeasuredSharedMemory() {
  static const Figures* const figures = [] {
    auto* const measured = new Figures;
    measured->copy_bytes_per_us = CopyBytesPerUs();
    MeasureWakes(measured);
    measured->one_sided = true;
    return measured;
  }();
  return *figures;
}

}  // namespace ar_grpc::protocol
