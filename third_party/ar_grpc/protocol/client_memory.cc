// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/client_memory.h"

#include <algorithm>

namespace ar_grpc::protocol {

ClientMemory::Age ClientMemory::AgeOnTcp(const std::string& client, Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = failures_.find(client);
  if (found != failures_.end()) {
    Failure& failure = found->second;
    const auto ago = now - failure.since;
    // gRPC spreads an age by a tenth.
    if (ago < failure.age * 9 / 10) return failure.age;
    // A connection outlives its age by its calls, and a client connects when it next calls.
    failure.age = ago < kRemembered ? std::min(failure.age * 2, kLongest) : kShortest;
    failure.since = now;
    return failure.age;
  }
  if (failures_.size() >= kMost) {
    failures_.erase(std::min_element(
        failures_.begin(), failures_.end(),
        [](const auto& a, const auto& b) { return a.second.since < b.second.since; }));
  }
  failures_[client] = {kShortest, now};
  return kShortest;
}

void ClientMemory::Forget(const std::string& client) {
  std::lock_guard<std::mutex> lock(mu_);
  failures_.erase(client);
}

}  // namespace ar_grpc::protocol
