// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_FRAME_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_FRAME_H_

#include <cstdint>
#include <string>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/address.h"

// What two ends tell each other before they are connected.
namespace ar_grpc::fabric::verbs {

// One end of a connection to be. The server's goes first, the client answers with its own.
struct Hello {
  uint32_t number = 0;     // of the queue pair; 24 bits
  uint32_t first_psn = 0;  // of the packets that it will send; 24 bits
  uint64_t seal = 0;       // of the keys that this end gives
  uint8_t mtu = abi::kSmallestMtu;
  uint8_t most_reads = 0;         // that it may have under way
  uint8_t most_served_reads = 0;  // that it serves at once
  Address address;
};

std::string Encode(const Hello& hello);
// kInvalidArgument for anything but a Hello whose numbers are in their ranges.
StatusOr<Hello> DecodeHello(const std::string& frame);

// How frames of other kinds begin (iwarp_frame.h): with the version, and with what they are.
Writer BeginFrame(uint8_t kind);
bool BeginsAs(uint8_t kind, Reader* reader);

// The server's last word: its end takes operations.
std::string ReadyFrame();
bool IsReadyFrame(const std::string& frame);

std::string EncodeBrochure(const Address& address);
StatusOr<Address> DecodeBrochure(const std::string& brochure);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_FRAME_H_
