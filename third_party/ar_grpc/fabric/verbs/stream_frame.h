// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_STREAM_FRAME_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_STREAM_FRAME_H_

#include <cstddef>
#include <cstdint>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/flow_control.h"

// What a SEND carries: a header of eight bytes, little-endian, and the payload.
//
//     version (1) | kind (1) | data credits (2) | message credits (2) | payload's bytes (2)
namespace ar_grpc::fabric::verbs {

enum class FrameKind : uint8_t {
  kData = 1,     // bytes of the stream, at least one
  kMessage = 2,  // a fabric::Message
  kCredits = 3,  // no payload
  kClose = 4,    // no payload; the last frame of this end
};

struct FrameHeader {
  FrameKind kind = FrameKind::kCredits;
  uint16_t data_credits = 0;
  uint16_t message_credits = 0;
  uint16_t payload = 0;
};
inline constexpr size_t kFrameHeaderBytes = 8;
inline constexpr size_t kFramePayload = kFrameBytes - kFrameHeaderBytes;

// Writes kFrameHeaderBytes.
void Encode(const FrameHeader& header, uint8_t* into);
// Of a frame of `size` bytes from the wire. kInvalidArgument for anything that no Encode made, or
// whose payload is not what follows the header.
StatusOr<FrameHeader> DecodeFrame(const uint8_t* frame, size_t size);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_STREAM_FRAME_H_
