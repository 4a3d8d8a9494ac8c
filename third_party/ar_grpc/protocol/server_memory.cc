// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/server_memory.h"

#include <algorithm>

namespace ar_grpc::protocol {
namespace {

// Makes room for one entry more: forgets the one that `age` orders first.
template <typename Map, typename Age>
void Bound(Map* map, size_t most, Age age) {
  if (map->size() < most) return;
  map->erase(std::min_element(map->begin(), map->end(), [&](const auto& a, const auto& b) {
    return age(a.second) < age(b.second);
  }));
}

}  // namespace

void ServerMemory::RememberVersion(const std::string& address, uint16_t version,
                                   Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mu_);
  if (versions_.count(address) == 0) {
    Bound(&versions_, kMost, [](const Version& entry) { return entry.until; });
  }
  versions_[address] = {version, now + kRemembered};
}

std::optional<uint16_t> ServerMemory::VersionOf(const std::string& address, Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = versions_.find(address);
  if (found == versions_.end()) return std::nullopt;
  if (now < found->second.until) return found->second.version;
  versions_.erase(found);
  return std::nullopt;
}

void ServerMemory::RememberSender(const std::string& task, const NodeId& node) {
  std::lock_guard<std::mutex> lock(mu_);
  if (senders_.count(task) == 0) {
    Bound(&senders_, kMost, [](const Sender& entry) { return entry.turn; });
  }
  senders_[task] = {node, ++turns_};
}

std::optional<NodeId> ServerMemory::SenderOf(const std::string& task) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = senders_.find(task);
  if (found == senders_.end()) return std::nullopt;
  return found->second.node;
}

}  // namespace ar_grpc::protocol
