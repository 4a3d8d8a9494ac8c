// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_NODE_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_NODE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/protocol/client_memory.h"
#include "third_party/ar_grpc/protocol/cost_model.h"
#include "third_party/ar_grpc/protocol/exports.h"
#include "third_party/ar_grpc/protocol/hello.h"
#include "third_party/ar_grpc/protocol/late_hellos.h"
#include "third_party/ar_grpc/protocol/link.h"
#include "third_party/ar_grpc/protocol/offers.h"
#include "third_party/ar_grpc/protocol/server_memory.h"

namespace ar_grpc::protocol {

// What one node moved and holds, for tests and tools. Bytes are of payload.
struct Counters {
  uint64_t stream_bytes_sent = 0;
  uint64_t stream_bytes_received = 0;
  uint64_t rendezvous = 0;        // tensors read straight out of peers' memory
  uint64_t rendezvous_bytes = 0;  // and their bytes
  uint64_t chunk_bytes = 0;       // fetched chunk by chunk through the stream
  uint64_t staged_bytes = 0;      // copied into a segment before they were offered
  uint64_t offers_open = 0;
  uint64_t links = 0;  // without those that were retired
};

// A peer whose connection was retired, and that has been away for so long, does not come back.
inline constexpr std::chrono::seconds kAwayAfterRetirement{20};

// One participant: a server with the channels it opens, or a bare client. It knows its links, what
// it offers to whom, and what it remembers of servers. Nothing of it is the process's: two nodes
// live in one process, and know each other as two processes would. Thread-safe.
class Node : public std::enable_shared_from_this<Node> {
 public:
  struct Options {
    // Names of fabrics that may be used, the preferred first, as ParseFabrics gives them; with
    // "tcp" among them a connection may stay on TCP.
    std::vector<std::string> fabrics;
    // What peers may read; nullptr: nothing, and tensors go through the stream.
    std::shared_ptr<Exports> exports;
    // How tensors travel, for who makes Senders; may be shared, and may be nullptr.
    std::shared_ptr<const Selector> selector;
  };
  static std::shared_ptr<Node> Create(Options options);

  const NodeId& id() const { return id_; }
  const std::vector<std::string>& fabrics() const { return options_.fabrics; }
  bool Allows(const std::string& fabric) const;
  Exports* exports() const { return options_.exports.get(); }
  const Selector* selector() const { return options_.selector.get(); }

  void AddLink(std::shared_ptr<Link> link);
  // The connection of `link` was retired: closed so that its peer makes a better one. The link is
  // closed, and what is offered to the peer stays, which fetches it over its next link. AddLink of
  // that one removes this one; the caller does after kAwayAfterRetirement, for a peer that stays
  // away.
  void LinkRetired(const std::shared_ptr<Link>& link);
  // Closes the link, and once the peer cannot read over it any more, lets go what was offered to
  // its peer if it was the peer's last link. What is let go is destroyed without a lock. Releases
  // that the peer may not have read go over another link, or wait for TakeUntold: also where this
  // was the last link to the peer, which may only have retired the connection.
  void RemoveLink(const std::shared_ptr<Link>& link);
  // Whether any peer that speaks AR-gRPC is or was connected. One that was may have retired the
  // connection: the call that connects anew must ask for an offer already, as a tensor may fit into
  // no response.
  bool HasHadLinks() const { return has_had_links_.load(std::memory_order_relaxed); }

  // The open link to `server` with this id, over which its memory can be read, or nullptr.
  std::shared_ptr<Link> LinkToRead(const NodeId& server, const LinkId& id);
  // The oldest open link over which messages get to `server`, or nullptr.
  std::shared_ptr<Link> LinkToTell(const NodeId& server);
  // The oldest open link over which `client` can read this process's memory, or nullptr. What is
  // offered to it from now on is held at least until that link is closed, or it is released.
  std::shared_ptr<Link> LinkReadBy(const NodeId& client);

  // Releases that may not have reached `server`: a call for them has failed, or the link that they
  // were posted over has ended. They wait for the next link to it, or for TakeUntold.
  void KeepUntold(const NodeId& server, const std::vector<uint64_t>& tickets);
  // Tickets to release by calls, as messages go over no link to `server`. Up to `most`, to be told
  // once.
  std::vector<uint64_t> TakeUntold(const NodeId& server, size_t most);

  // What is held for peers until they release it.
  Offers& offers() { return offers_; }
  // Takes up to `most` messages of `link` that have come, and lets go what they release; `released`
  // gets it, to be destroyed by the caller once it holds no lock. `taken` is how many came, also
  // before an error, which is Link::TakeMessages'.
  Status TakeMessages(Link* link, size_t most, std::vector<Offers::Held>* released, size_t* taken);

  ServerMemory& servers() { return servers_; }
  ClientMemory& clients() { return clients_; }
  LateHellos& late_hellos() { return late_hellos_; }

  // How each server that this node has connected to is reached, by address: its last link's.
  struct Path {
    std::string fabric;
    double far_us = 0;  // Link::far_us
  };
  std::map<std::string, Path> Paths();
  Counters Count();
  void CountRendezvous(uint64_t bytes);
  void CountChunked(uint64_t bytes);
  void CountStaged(uint64_t bytes);

 private:
  friend std::vector<std::shared_ptr<Node>> AllNodes();
  explicit Node(Options options);

  // The oldest open link that this process is `end` of and that `fits`, or nullptr.
  template <typename Fits>
  std::shared_ptr<Link> Oldest(End end, const NodeId& peer, Fits fits);
  // Posts releases over a link that takes them, and keeps those that are left.
  void TellOverAnotherLink(const NodeId& server, std::vector<uint64_t> tickets);
  // Whether messages or calls get to `server`.
  bool ConnectedLocked(const NodeId& server) const;

  struct Untold {
    std::vector<uint64_t> tickets;
    std::chrono::steady_clock::time_point since;  // when the last one came
  };

  const Options options_;
  const NodeId id_;
  const uint32_t fork_count_;
  std::atomic<bool> has_had_links_{false};
  Offers offers_;
  ServerMemory servers_;
  ClientMemory clients_;
  LateHellos late_hellos_;
  std::mutex mu_;
  // The rest is guarded by mu_.
  std::vector<std::shared_ptr<Link>> links_;  // in the order in which they came
  std::map<NodeId, Untold> untold_;           // by server
  std::map<std::string, Path> paths_;
  Counters counters_;
};

// All nodes that this process made and that live; for counters and for tests. Not those of a parent
// that forked it: any of its threads may have held a lock of theirs.
std::vector<std::shared_ptr<Node>> AllNodes();

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_NODE_H_
