// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/peers.h"

#include <algorithm>
#include <utility>

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::protocol {
namespace {

constexpr uint8_t kReleaseMessage = 1;
constexpr size_t kRevokedKept = 4096;

fabric::Message ReleaseMessage(uint64_t ticket) {
  Writer writer;
  writer.Put(kReleaseMessage);
  writer.Put(ticket);
  const std::string bytes = writer.Take();
  fabric::Message message;
  std::copy(bytes.begin(), bytes.end(), message.bytes.begin());
  return message;
}

}  // namespace

Link::Link(Role role, const NodeId& peer, std::string address, std::string fabric, const LinkId& id,
           std::unique_ptr<fabric::Connection> connection)
    : role_(role),
      peer_(peer),
      address_(std::move(address)),
      fabric_(std::move(fabric)),
      id_(id),
      connection_(std::move(connection)) {}

StatusOr<bool> Link::FlushLocked() {
  while (!waiting_.empty()) {
    StatusOr<bool> posted = connection_->Post(waiting_.front());
    if (!posted.ok()) return posted;
    if (*posted) {
      waiting_.pop_front();
      continue;
    }
    // Refused: either the peer wakes this end when there is room, or there is room by now.
    StatusOr<bool> armed = connection_->ArmPost();
    if (!armed.ok() || *armed) return armed.ok() ? StatusOr<bool>(false) : armed;
  }
  return true;
}

StatusOr<size_t> Link::Write(const iovec* parts, int count) {
  std::lock_guard<std::mutex> lock(write_mu_);
  StatusOr<bool> flushed = FlushLocked();
  if (!flushed.ok()) return flushed.status();
  return connection_->Write(parts, count);
}

StatusOr<bool> Link::ArmWrite() {
  std::lock_guard<std::mutex> lock(write_mu_);
  return connection_->ArmWrite();
}

bool Link::Waiting() {
  std::lock_guard<std::mutex> lock(write_mu_);
  return !waiting_.empty();
}

Status Link::Flush() {
  std::lock_guard<std::mutex> lock(write_mu_);
  return FlushLocked().status();
}

void Link::Release(uint64_t ticket) {
  if (connection_ == nullptr) return;
  std::lock_guard<std::mutex> lock(write_mu_);
  waiting_.push_back(ReleaseMessage(ticket));
  // After an error they do not matter: the peer lets everything go when the link goes.
  (void)FlushLocked().ok();
}

Status Link::Progress() {
  fabric::Message message;
  for (;;) {
    StatusOr<bool> taken = connection_->Take(&message);
    if (!taken.ok()) return taken.status();
    if (!*taken) return OkStatus();
    Reader reader(std::string_view(reinterpret_cast<const char*>(message.bytes.data()),
                                   message.bytes.size()));
    uint8_t kind = 0;
    uint64_t ticket = 0;
    if (!reader.Get(&kind) || kind != kReleaseMessage || !reader.Get(&ticket)) {
      return Status(StatusCode::kInternal,
                    "the peer sent a message of unknown kind " + std::to_string(kind));
    }
    Peers::Get().Release(peer_, ticket);
  }
}

void Link::Close() {
  closed_.store(true);
  if (connection_ != nullptr) connection_->Close();
}

bool Link::closed() const {
  return closed_.load() || (connection_ != nullptr && connection_->closed());
}

Peers& Peers::Get() {
  // Never destroyed: connections end while the process does.
  static Peers* const peers = new Peers;
  return *peers;
}

Peers::Peers() : self_(NewToken()) {}

void Peers::Up(std::shared_ptr<Link> link) {
  std::lock_guard<std::mutex> lock(mu_);
  links_up_.fetch_add(1);
  if (link->role() == Role::kServer) {
    ++receivers_[link->peer()].links;
  } else {
    paths_[link->address()] = link->fabric();
  }
  links_.push_back(std::move(link));
}

void Peers::Down(const std::shared_ptr<Link>& link) {
  // The receiver looks whether the link is closed after its copy, so it must be, before the memory
  // can get new contents.
  link->Close();
  std::map<uint64_t, Offered> dropped;
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = std::find(links_.begin(), links_.end(), link);
  if (found == links_.end()) return;
  links_.erase(found);
  links_up_.fetch_sub(1);
  if (link->connection() != nullptr) {
    counters_.stream_bytes_sent += link->connection()->stream_bytes_sent();
    counters_.stream_bytes_received += link->connection()->stream_bytes_received();
  }
  if (link->role() != Role::kServer) return;
  Receiver& receiver = receivers_[link->peer()];
  if (--receiver.links > 0) return;
  // Destroyed after the lock, which a tensor's release must not find held.
  dropped = std::move(receiver.offers);
  receivers_.erase(link->peer());
}

std::shared_ptr<Link> Peers::Oldest(Role role, const NodeId& peer, const LinkId* id) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = std::find_if(links_.begin(), links_.end(), [&](const auto& link) {
    return link->role() == role && link->peer() == peer && link->connection() != nullptr &&
           (id == nullptr || link->id() == *id) && !link->closed();
  });
  return found == links_.end() ? nullptr : *found;
}

std::shared_ptr<Link> Peers::Reading(const NodeId& server, const LinkId& id) {
  std::shared_ptr<Link> link = Oldest(Role::kClient, server, &id);
  return link != nullptr && link->connection()->remote_size() > 0 ? link : nullptr;
}

std::shared_ptr<Link> Peers::Talking(const NodeId& server) {
  return Oldest(Role::kClient, server, nullptr);
}

std::optional<LinkId> Peers::ReadBy(const NodeId& client) {
  const std::shared_ptr<Link> link = Oldest(Role::kServer, client, nullptr);
  return link == nullptr ? std::nullopt : std::make_optional(link->id());
}

bool Peers::Offer(const NodeId& client, uint64_t ticket, Offered offered) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = receivers_.find(client);
  if (found == receivers_.end()) return false;
  std::deque<uint64_t>& revoked = found->second.revoked;
  const auto given_up = std::find(revoked.begin(), revoked.end(), ticket);
  if (given_up != revoked.end()) {
    revoked.erase(given_up);
    return false;
  }
  return found->second.offers.emplace(ticket, std::move(offered)).second;
}

std::optional<Offered> Peers::Find(const NodeId& client, uint64_t ticket) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = receivers_.find(client);
  if (found == receivers_.end()) return std::nullopt;
  const auto offer = found->second.offers.find(ticket);
  if (offer == found->second.offers.end()) return std::nullopt;
  return offer->second;
}

void Peers::Release(const NodeId& client, uint64_t ticket) {
  std::map<uint64_t, Offered>::node_type released;
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = receivers_.find(client);
  if (found == receivers_.end()) return;
  released = found->second.offers.extract(ticket);
  if (!released.empty()) return;
  std::deque<uint64_t>& revoked = found->second.revoked;
  revoked.push_back(ticket);
  if (revoked.size() > kRevokedKept) revoked.pop_front();
}

std::map<std::string, std::string> Peers::Paths() {
  std::lock_guard<std::mutex> lock(mu_);
  return paths_;
}

Counters Peers::Count() {
  std::lock_guard<std::mutex> lock(mu_);
  Counters counters = counters_;
  for (const auto& link : links_) {
    if (link->connection() == nullptr) continue;
    counters.stream_bytes_sent += link->connection()->stream_bytes_sent();
    counters.stream_bytes_received += link->connection()->stream_bytes_received();
  }
  for (const auto& [node, receiver] : receivers_) counters.offers_open += receiver.offers.size();
  counters.links = links_.size();
  return counters;
}

void Peers::CountRendezvous(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  ++counters_.rendezvous;
  counters_.rendezvous_bytes += bytes;
}

void Peers::CountChunk(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  counters_.chunk_bytes += bytes;
}

void Peers::CountStaged(uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mu_);
  counters_.staged_bytes += bytes;
}

}  // namespace ar_grpc::protocol
