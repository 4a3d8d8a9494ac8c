// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_SENDER_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_SENDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/link.h"
#include "third_party/ar_grpc/protocol/node.h"
#include "third_party/ar_grpc/protocol/rendezvous_messages.h"
#include "third_party/ar_grpc/protocol/schemes.h"

namespace ar_grpc::protocol {

// Bytes that are sent.
struct SourceBuffer {
  const uint8_t* data = nullptr;
  uint64_t size = 0;
  std::shared_ptr<const void> keep;  // owns `data`
};

// A transfer's sending end: decides how bytes that were asked for travel, and answers the calls for
// chunks. What it holds is the node's (Node::offers), so a Sender is made for one call and thrown
// away. Thread-safe.
class Sender {
 public:
  // Memory of a segment that the node exports; nullptr where none is left.
  using Stage = std::function<std::shared_ptr<uint8_t>(uint64_t size)>;
  // How the bytes travel over `link`; nullptr: the receiver can read over none.
  using Choose = std::function<Scheme(const Link* link, const Situation& situation)>;

  Sender(std::shared_ptr<Node> node, Stage stage, Choose choose)
      : node_(std::move(node)), stage_(std::move(stage)), choose_(std::move(choose)) {}

  // Offers `source` to who asks, if that is how it travels best. `released`, which may be empty,
  // then runs once, when the source is not read any more: when it was copied to be offered, else
  // when it is let go. It runs on any thread, holding no lock, perhaps before this returns; it must
  // not block. nullopt: the bytes are to be sent in the message, and `released` does not run.
  std::optional<Offer> TryOffer(const Ask& ask, SourceBuffer source,
                                std::function<void()> released);

  // A chunk of what is offered.
  struct Piece {
    const uint8_t* data = nullptr;
    uint64_t length = 0;
    std::shared_ptr<const void> keep;  // owns `data`
  };
  // Answers a call. A request of length 0 releases, and its answer is an empty piece. kUnavailable:
  // the ticket is not held any more. kInvalidArgument: out of bounds.
  StatusOr<Piece> ServeChunk(const ChunkRequest& request);

 private:
  // Copies `source` to where `link`'s peer can read it; nullopt where that is not to be had.
  std::optional<std::pair<SourceBuffer, Exports::Readable>> StageFor(Link& link,
                                                                     const SourceBuffer& source);

  const std::shared_ptr<Node> node_;
  const Stage stage_;
  const Choose choose_;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_SENDER_H_
