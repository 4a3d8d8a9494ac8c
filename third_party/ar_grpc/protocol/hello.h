// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_HELLO_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_HELLO_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"

// What two ends say to each other on a fresh TCP connection, before HTTP/2 or TLS:
//
//   client  hello    which fabrics it can use, in its order of preference (a brochure)
//   server  answer   which of them it chose, where to connect, and the token to show there;
//                    or none: the connection stays on TCP
//   client  verdict  the fabric is established, or the connection stays on TCP
//
// All three are frames: magic (8 bytes), version, kind and length (2, 2, 4 bytes, little-endian),
// body. A frame's size never exceeds kMaxFrame. Whatever does not start with the magic is not ours
// and is left to HTTP/2.
namespace ar_grpc::protocol {

// HTTP/2's preface starts with "PRI", a server's first frame with a length below 2^24.
inline constexpr std::string_view kMagic = "AR-gRPC\n";
inline constexpr uint16_t kVersion = 1;
inline constexpr size_t kHeader = 16;
inline constexpr size_t kMaxFrame = 4096;

// Random, one per process: what tells peers apart.
using NodeId = std::array<uint8_t, 16>;

struct Hello {
  NodeId node{};
  std::vector<std::string> fabrics;
};

struct Answer {
  NodeId node{};
  // Empty: stay on TCP, because of `reason`.
  std::string fabric;
  std::string address;
  Token token{};
  std::string reason;
};

struct Verdict {
  bool established = false;
  // Why not.
  std::string reason;
};

std::string Encode(const Hello& hello);
std::string Encode(const Answer& answer);
std::string Encode(const Verdict& verdict);

enum class Look {
  // More bytes are needed to tell.
  kUnfinished,
  // Not a frame of ours: plain HTTP/2, TLS or something else.
  kForeign,
  // `size` bytes are one whole frame.
  kFrame,
};

struct Seen {
  Look look;
  size_t size = 0;
};

// Looks at the first bytes of a connection. A frame longer than kMaxFrame is foreign.
Seen LookAt(std::string_view bytes);

// Decode one whole frame. kUnimplemented: another version, so the connection stays on TCP;
// kInvalidArgument: a frame of another kind, cut short, or with a field that is out of bounds.
StatusOr<Hello> DecodeHello(std::string_view frame);
StatusOr<Answer> DecodeAnswer(std::string_view frame);
StatusOr<Verdict> DecodeVerdict(std::string_view frame);

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_HELLO_H_
