// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_SERVER_MEMORY_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_SERVER_MEMORY_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "third_party/ar_grpc/protocol/hello.h"

namespace ar_grpc::protocol {

// What a client remembers of servers, by address, for a minute: those that do not speak AR-gRPC are
// spared the hello, those that speak version 1 get a hello of that version. And which node answered
// as which task, so that a call that failed is taken back there only. Bounded; thread-safe.
class ServerMemory {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::minutes kRemembered{1};
  static constexpr size_t kMost = 4096;  // of each kind; the oldest is forgotten

  // 0: it does not speak AR-gRPC.
  void RememberVersion(const std::string& address, uint16_t version, Clock::time_point now);
  std::optional<uint16_t> VersionOf(const std::string& address, Clock::time_point now);

  void RememberSender(const std::string& task, const NodeId& node);
  std::optional<NodeId> SenderOf(const std::string& task);

 private:
  struct Version {
    uint16_t version;
    Clock::time_point until;
  };
  struct Sender {
    NodeId node;
    uint64_t turn;  // when it was remembered, counted in turns_
  };
  std::mutex mu_;
  // The rest is guarded by mu_.
  std::map<std::string, Version> versions_;
  std::map<std::string, Sender> senders_;
  uint64_t turns_ = 0;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_SERVER_MEMORY_H_
