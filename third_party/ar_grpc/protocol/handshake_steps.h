// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_HANDSHAKE_STEPS_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_HANDSHAKE_STEPS_H_

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/handshake.h"

// What both ends' machines share.
namespace ar_grpc::protocol {

// The one fabric that version 1 knows.
inline constexpr char kFirstVersionFabric[] = "shm";
inline constexpr char kAstray[] = "wrote to TCP after it had left it";
inline constexpr char kBrokeOff[] = "broke off the AR-gRPC handshake";

inline Step SendStep(std::string bytes) {
  Step step;
  step.kind = Step::Kind::kSend;
  step.bytes = std::move(bytes);
  return step;
}

inline std::string OtherVersionText(uint16_t peers, uint16_t own) {
  return "the peer speaks version " + std::to_string(peers) + ", this end speaks " +
         std::to_string(own);
}

inline std::string OutOfTime(const std::string& fabric, std::chrono::milliseconds time) {
  return "no " + fabric + " within " + std::to_string(time.count()) + " ms";
}

// What an attempt may take when `left` fabrics are left with its own: one share is kept for TCP.
inline std::chrono::milliseconds Share(Instant now, Instant deadline, size_t left) {
  const auto rest = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now);
  return std::max(rest, std::chrono::milliseconds(0)) / static_cast<int>(left + 1);
}

// Whether what failed so may work later.
inline bool IsTransient(StatusCode code) {
  return code == StatusCode::kResourceExhausted || code == StatusCode::kDeadlineExceeded ||
         code == StatusCode::kUnavailable;
}

inline bool Contains(const std::vector<Brochure>& brochures, const std::string& fabric) {
  return std::any_of(brochures.begin(), brochures.end(),
                     [&](const Brochure& each) { return each.fabric == fabric; });
}
inline bool ContainsName(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Adds to the reasons why a connection stays on TCP.
inline void AddReason(const std::string& why, std::string* reasons) {
  if (!reasons->empty()) *reasons += "; ";
  *reasons += why;
}

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_HANDSHAKE_STEPS_H_
