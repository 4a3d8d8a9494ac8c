// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_TOKEN_FRAME_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_TOKEN_FRAME_H_

#include <cstdint>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/base/wire.h"

// The one frame of an attachment by token (token_attachment.h): where the server listens, and what
// to show there. Version (2 bytes), address (2 bytes of length, then text), token (16).
namespace ar_grpc::fabric {

struct TokenFrame {
  // What the fabric is to speak at that address. 1: the release before frames, whose answers are
  // translated to frames. Our own servers give 2.
  uint16_t version = 2;
  std::string address;  // at most kLargestTokenAddress bytes
  Token token{};
};
inline constexpr size_t kLargestTokenAddress = 900;

inline std::string EncodeTokenFrame(const TokenFrame& frame) {
  Writer writer;
  writer.Put(frame.version);
  writer.PutText(frame.address);
  writer.Put(frame.token);
  return writer.Take();
}

// kInvalidArgument for what is no such frame. Any version but 0: the fabric says which it speaks.
inline StatusOr<TokenFrame> DecodeTokenFrame(const std::string& bytes) {
  Reader reader(bytes);
  TokenFrame frame;
  if (!reader.Get(&frame.version) || !reader.GetText(&frame.address) || !reader.Get(&frame.token) ||
      !reader.AtEnd() || frame.version == 0 || frame.address.size() > kLargestTokenAddress) {
    return Status(StatusCode::kInvalidArgument, "a malformed frame with an attachment's token");
  }
  return frame;
}

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_TOKEN_FRAME_H_
