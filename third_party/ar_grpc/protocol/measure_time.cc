// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/measure_time.h"

#include <poll.h>
#include <time.h>

#include <cstdint>

namespace ar_grpc::protocol::measuring {

void Pause(int us) {
  const timespec time = {0, us * 1000};
  nanosleep(&time, nullptr);
}

bool Readable(int fd, int timeout_ms) {
  pollfd waits = {fd, POLLIN, 0};
  return poll(&waits, 1, timeout_ms) == 1;
}

int MsUntil(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

}  // namespace ar_grpc::protocol::measuring
