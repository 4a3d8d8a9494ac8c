// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/stream_frame.h"

#include <string_view>

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::fabric::verbs {
namespace {

constexpr uint8_t kVersion = 1;

void Put16(uint16_t value, uint8_t* into) {
  into[0] = static_cast<uint8_t>(value);
  into[1] = static_cast<uint8_t>(value >> 8);
}

bool PayloadFits(FrameKind kind, size_t payload) {
  switch (kind) {
    case FrameKind::kData:
      return payload > 0 && payload <= kFramePayload;
    case FrameKind::kMessage:
      return payload == Message::kSize;
    case FrameKind::kCredits:
    case FrameKind::kClose:
      return payload == 0;
  }
  return false;
}

}  // namespace

void Encode(const FrameHeader& header, uint8_t* into) {
  into[0] = kVersion;
  into[1] = static_cast<uint8_t>(header.kind);
  Put16(header.data_credits, into + 2);
  Put16(header.message_credits, into + 4);
  Put16(header.payload, into + 6);
}

StatusOr<FrameHeader> DecodeFrame(const uint8_t* frame, size_t size) {
  Reader reader(std::string_view(reinterpret_cast<const char*>(frame), size));
  uint8_t version = 0;
  uint8_t kind = 0;
  FrameHeader header;
  const bool whole = reader.Get(&version) && reader.Get(&kind) &&
                     reader.Get(&header.data_credits) && reader.Get(&header.message_credits) &&
                     reader.Get(&header.payload);
  header.kind = static_cast<FrameKind>(kind);
  if (!whole || version != kVersion || header.payload != size - kFrameHeaderBytes ||
      !PayloadFits(header.kind, header.payload)) {
    return Status(StatusCode::kInvalidArgument, "the peer sent a malformed frame over RDMA");
  }
  return header;
}

}  // namespace ar_grpc::fabric::verbs
