// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/offers.h"

#include <utility>

namespace ar_grpc::protocol {

void Offers::AddLink(const NodeId& receiver) {
  std::lock_guard<std::mutex> lock(mu_);
  ++receivers_[receiver].links;
}

std::vector<Offers::Held> Offers::RemoveLink(const NodeId& receiver) {
  std::vector<Held> dropped;
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = receivers_.find(receiver);
  if (found == receivers_.end() || --found->second.links > 0) return dropped;
  dropped.reserve(found->second.held.size());
  for (auto& [ticket, held] : found->second.held) dropped.push_back(std::move(held));
  receivers_.erase(found);
  return dropped;
}

bool Offers::Hold(const NodeId& receiver, uint64_t ticket, Held held, Held* replaced) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = receivers_.find(receiver);
  if (found == receivers_.end() || found->second.revoked.count(ticket) > 0) return false;
  if (found->second.held.size() >= kMostHeld && found->second.held.count(ticket) == 0) return false;
  *replaced = std::exchange(found->second.held[ticket], std::move(held));
  return true;
}

std::optional<Offers::Held> Offers::Find(const NodeId& receiver, uint64_t ticket) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = receivers_.find(receiver);
  if (found == receivers_.end()) return std::nullopt;
  const auto held = found->second.held.find(ticket);
  if (held == found->second.held.end()) return std::nullopt;
  return held->second;
}

Offers::Held Offers::Release(const NodeId& receiver, uint64_t ticket) {
  Held released;
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = receivers_.find(receiver);
  if (found == receivers_.end()) return released;
  Receiver& from = found->second;
  if (from.revoked.insert(ticket).second) {
    from.revoked_order.push_back(ticket);
    if (from.revoked_order.size() > kRevokedKept) {
      from.revoked.erase(from.revoked_order.front());
      from.revoked_order.pop_front();
    }
  }
  const auto held = from.held.find(ticket);
  if (held == from.held.end()) return released;
  released = std::move(held->second);
  from.held.erase(held);
  return released;
}

uint64_t Offers::open() {
  std::lock_guard<std::mutex> lock(mu_);
  uint64_t open = 0;
  for (const auto& [node, receiver] : receivers_) open += receiver.held.size();
  return open;
}

}  // namespace ar_grpc::protocol
