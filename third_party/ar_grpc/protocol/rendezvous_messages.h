// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_RENDEZVOUS_MESSAGES_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_RENDEZVOUS_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/protocol/hello.h"
#include "third_party/ar_grpc/protocol/link.h"

// What the two ends of a transfer tell each other inside of their calls.
//
//   receiver  asks: its node and a random ticket, with the request
//   sender    offers: where the bytes lie, with the response; or answers with the bytes
//   receiver  reads the sender's memory, or asks for chunks by further calls; then releases the
//             ticket, by a message over the link or by a call
//
// A message travels with its type's name, and a change of its bytes gets a new name. So a peer that
// does not know the name, or knows an older one, answers with the bytes.
namespace ar_grpc::protocol {

struct Ask {
  static constexpr char kType[] = "ar-grpc/ask.3";
  NodeId receiver{};
  uint64_t ticket = 0;
};

struct Offer {
  static constexpr char kType[] = "ar-grpc/offer.3";
  // Where the receiver reads the bytes by itself.
  struct Readable {
    LinkId link{};  // over which the key holds; while it is open the bytes are held
    fabric::Key key;
    uint64_t offset = 0;  // of the first byte, in what the key names
  };
  NodeId sender{};
  uint64_t ticket = 0;
  uint64_t size = 0;
  std::optional<Readable> readable;  // without it the bytes are fetched in chunks
};

struct ChunkRequest {
  static constexpr char kType[] = "ar-grpc/chunk.1";
  NodeId receiver{};
  uint64_t ticket = 0;
  uint64_t offset = 0;
  uint64_t length = 0;  // 0: the ticket is released
};

std::string Encode(const Ask& ask);
std::string Encode(const Offer& offer);
std::string Encode(const ChunkRequest& request);

// kInvalidArgument: cut short, too long, or a field out of bounds.
StatusOr<Ask> DecodeAsk(std::string_view bytes);
StatusOr<Offer> DecodeOffer(std::string_view bytes);
StatusOr<ChunkRequest> DecodeChunkRequest(std::string_view bytes);

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_RENDEZVOUS_MESSAGES_H_
