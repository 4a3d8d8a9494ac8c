// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_OFFERS_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_OFFERS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "third_party/ar_grpc/protocol/hello.h"

namespace ar_grpc::protocol {

// Memory that is held for receivers until they release it, or until their last link goes.
//
// A receiver draws a random ticket and sends it with its request; the sender holds what it offers
// under (receiver, ticket). A receiver that lost interest releases too, perhaps before the offer
// was made, and a request that was sent twice may be answered once more after the release: so
// released tickets are remembered, and what comes late is not held. Nothing is destroyed under a
// lock: what is let go is given back to the caller. Thread-safe.
class Offers {
 public:
  // Offers that are held for one receiver; more are refused, and those tensors go in the message: a
  // receiver that asks and never releases must not fill this table. What is held of memory is
  // bounded by the segments' own limit.
  static constexpr size_t kMostHeld = size_t{1} << 16;
  // Released tickets that are remembered for one receiver; the oldest is forgotten.
  static constexpr size_t kRevokedKept = 4096;

  struct Held {
    const uint8_t* data = nullptr;
    uint64_t size = 0;
    std::shared_ptr<const void> keep;  // owns `data`
  };

  // A link from `receiver` has come or gone. What the last one's going lets go is returned.
  void AddLink(const NodeId& receiver);
  std::vector<Held> RemoveLink(const NodeId& receiver);

  // Holds `held`. Another try of the same call replaces what was held before, which goes to
  // `replaced`. false: the receiver has no link, or released the ticket already, or too much is
  // held for it; nothing is held.
  bool Hold(const NodeId& receiver, uint64_t ticket, Held held, Held* replaced);
  std::optional<Held> Find(const NodeId& receiver, uint64_t ticket);
  // Lets go what is held under the ticket and returns it, and remembers that no more is wanted.
  Held Release(const NodeId& receiver, uint64_t ticket);
  uint64_t open();

 private:
  struct Receiver {
    int links = 0;
    std::unordered_map<uint64_t, Held> held;
    // In constant time each: looked up for every offer.
    std::unordered_set<uint64_t> revoked;
    std::deque<uint64_t> revoked_order;  // the oldest first
  };
  std::mutex mu_;
  std::map<NodeId, Receiver> receivers_;  // guarded by mu_
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_OFFERS_H_
