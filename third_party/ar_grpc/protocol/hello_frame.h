// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_HELLO_FRAME_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_HELLO_FRAME_H_

#include <string>
#include <string_view>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/hello.h"

// What the frames of both versions share, for hello.cc and hello_v1.cc.
namespace ar_grpc::protocol {

std::string MakeFrame(uint16_t version, FrameKind kind, const std::string& body);
// kUnimplemented: another version. kInvalidArgument: another kind, or not one whole frame.
StatusOr<std::string_view> FrameBody(uint16_t version, FrameKind kind, std::string_view frame);

Status OtherVersion(uint16_t peers, uint16_t own);
Status Malformed(const char* what);

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_HELLO_FRAME_H_
