// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_TIME_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_TIME_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>

// What the measurements of a fabric share (measure.h): a clock, the least of many times, and sleep.
namespace ar_grpc::protocol::measuring {

using Clock = std::chrono::steady_clock;

// What is copied from and to, in turns: more than a core's own cache, as tensors are.
inline constexpr size_t kAreaBytes = size_t{2} << 20;

inline double Us(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

// Time that passes between its making and us().
class Watch {
 public:
  double us() const { return Us(Clock::now() - begin_); }

 private:
  const Clock::time_point begin_ = Clock::now();
};

// The least of what was seen, if anything was.
class Least {
 public:
  void Add(double us) { us_ = std::min(us_, us); }
  bool seen() const { return us_ < std::numeric_limits<double>::infinity(); }
  double us() const { return us_; }
  // What the bytes take beside `start`. Never nothing: a clock may stand still.
  double Rate(double bytes, double start) const { return bytes / std::max(us_ - start, 1e-3); }

 private:
  double us_ = std::numeric_limits<double>::infinity();
};

void Pause(int us);
// Whether `fd` polls readable within `timeout_ms`.
bool Readable(int fd, int timeout_ms);
// The whole milliseconds until then, 0 when it has passed.
int MsUntil(Clock::time_point deadline);

}  // namespace ar_grpc::protocol::measuring

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_TIME_H_
