// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_IWARP_FRAME_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_IWARP_FRAME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/address.h"

// What two ends tell each other so that one connects to the other over iWARP.
namespace ar_grpc::fabric::verbs {

// READs of one end.
struct ReadDepth {
  uint8_t most = 0;         // that it may have under way
  uint8_t most_served = 0;  // that it serves at once
};

// The server's first frame: where it listens, and what to show there.
struct IwarpInvitation {
  uint64_t seal = 0;  // of the keys that this end gives
  ReadDepth reads;
  Token token{};
  Address address;              // of iWARP
  std::vector<uint16_t> ports;  // of each of the address's names
};
std::string Encode(const IwarpInvitation& invitation);
// kInvalidArgument for anything that no Encode made.
StatusOr<IwarpInvitation> DecodeInvitation(const std::string& frame);

// What the client shows there: the private data of its request.
struct IwarpIntroduction {
  Token token{};
  ReadDepth reads;
};
std::string Encode(const IwarpIntroduction& introduction);
// Bytes of a stranger's, maybe, and maybe filled up with more at the end.
StatusOr<IwarpIntroduction> DecodeIntroduction(const std::string& data);

// The client's frame, once it is connected: the seal of the keys that it gives.
std::string ConnectedFrame(uint64_t seal);
StatusOr<uint64_t> DecodeConnected(const std::string& frame);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_IWARP_FRAME_H_
