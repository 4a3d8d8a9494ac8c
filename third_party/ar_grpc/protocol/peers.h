// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_PEERS_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_PEERS_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/protocol/hello.h"

// The processes this one is connected to, and the memory that is offered to them.
//
// Rendezvous: the receiver draws a ticket and sends it with its request. The sender offers its
// tensor under (receiver, ticket) and answers with where it lies. The receiver copies, then
// releases the ticket; the sender lets the tensor go. A receiver that lost interest releases too.
// When the last connection from a receiver goes, everything offered to it is let go.
namespace ar_grpc::protocol {

enum class Role { kClient, kServer };

// The same at both ends: the token that the connection was introduced with.
using LinkId = Token;

// An established connection to a peer's process. Its stream belongs to the gRPC endpoint, its
// messages to the rendezvous. Thread-safe but for Read, Readable and Progress (one reader).
class Link {
 public:
  // `connection` is nullptr when the link is plain TCP: it is then known, but moves nothing itself.
  // `address`: the peer's, as gRPC writes it.
  // `id` matters only with a connection.
  Link(Role role, const NodeId& peer, std::string address, std::string fabric, const LinkId& id,
       std::unique_ptr<fabric::Connection> connection);

  Role role() const { return role_; }
  const NodeId& peer() const { return peer_; }
  const std::string& address() const { return address_; }
  // "tcp" without a connection.
  const std::string& fabric() const { return fabric_; }
  const LinkId& id() const { return id_; }
  fabric::Connection* connection() const { return connection_.get(); }

  // As Connection's Write and ArmWrite; messages that wait for room go first.
  StatusOr<size_t> Write(const iovec* parts, int count);
  StatusOr<bool> ArmWrite();
  // Handles the messages that have come.
  Status Progress();
  // Tells the peer that it may let the tensor under `ticket` go.
  void Release(uint64_t ticket);
  // Sends messages that waited for room; called when the link's descriptor has been readable.
  Status Flush();
  bool Waiting();

  void Close();
  // Whether either end has closed the link. A copy that ended before it was closed is good.
  bool closed() const;

 private:
  // Sends what waits; false when the ring is full, and then the peer wakes this end.
  StatusOr<bool> FlushLocked();

  const Role role_;
  const NodeId peer_;
  const std::string address_;
  const std::string fabric_;
  const LinkId id_;
  const std::unique_ptr<fabric::Connection> connection_;
  std::atomic<bool> closed_{false};
  std::mutex write_mu_;
  // Guarded by write_mu_.
  std::deque<fabric::Message> waiting_;
};

// Memory offered to one peer under one ticket.
struct Offered {
  const uint8_t* data = nullptr;
  uint64_t size = 0;
  // Keeps `data` alive.
  std::shared_ptr<const void> keep;
};

// What this process moved and holds, for tests and tools.
struct Counters {
  uint64_t stream_bytes_sent = 0;
  uint64_t stream_bytes_received = 0;
  // Bytes read straight out of peers' memory.
  uint64_t rendezvous_bytes = 0;
  // Bytes read chunk by chunk through the stream.
  uint64_t chunk_bytes = 0;
  // Rendezvous whose tensor had to be copied into the region first, in bytes.
  uint64_t staged_bytes = 0;
  uint64_t rendezvous = 0;
  uint64_t offers_open = 0;
  uint64_t links = 0;
};

class Peers {
 public:
  static Peers& Get();

  const NodeId& self() const { return self_; }

  void Up(std::shared_ptr<Link> link);
  // Also closes it, before anything offered over it is let go.
  void Down(const std::shared_ptr<Link>& link);

  // The open link to `server` with this id, over which its memory can be read, or nullptr.
  std::shared_ptr<Link> Reading(const NodeId& server, const LinkId& id);
  // Any open link over which messages get to `server`, or nullptr.
  std::shared_ptr<Link> Talking(const NodeId& server);
  // The oldest link over which `client` can read this process's memory. What is offered to it from
  // now on is held at least until that link is closed, or it is released.
  std::optional<LinkId> ReadBy(const NodeId& client);
  // Whether any peer that speaks AR-gRPC is connected.
  bool Any() const { return links_up_.load(std::memory_order_relaxed) > 0; }

  // Holds `offered` until it is released. false: `client` has no link, or released the ticket
  // already; then nothing is held.
  bool Offer(const NodeId& client, uint64_t ticket, Offered offered);
  std::optional<Offered> Find(const NodeId& client, uint64_t ticket);
  void Release(const NodeId& client, uint64_t ticket);

  // The fabric of each server that this process is connected to, by address; the last one wins.
  std::map<std::string, std::string> Paths();
  Counters Count();
  void CountRendezvous(uint64_t bytes);
  void CountChunk(uint64_t bytes);
  void CountStaged(uint64_t bytes);

 private:
  Peers();

  // The open link that came up first, of those with this id if it is given; nullptr without one.
  std::shared_ptr<Link> Oldest(Role role, const NodeId& peer, const LinkId* id);

  // What is known of the receivers of one process.
  struct Receiver {
    int links = 0;
    std::map<uint64_t, Offered> offers;
    // Released before they were offered, oldest first; only these few are remembered, as they come
    // from calls that were given up.
    std::deque<uint64_t> revoked;
  };

  const NodeId self_;
  std::atomic<int> links_up_{0};
  std::mutex mu_;
  // The rest is guarded by mu_.
  std::map<NodeId, Receiver> receivers_;
  std::vector<std::shared_ptr<Link>> links_;
  std::map<std::string, std::string> paths_;
  Counters counters_;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_PEERS_H_
