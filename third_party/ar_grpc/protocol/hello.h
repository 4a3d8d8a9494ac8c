// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_HELLO_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_HELLO_H_

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"

// What two ends say to each other on a fresh TCP connection, before HTTP/2 or TLS; handshake.h says
// who says what when. A frame is: magic (8 bytes), version, kind and length of the body (2, 2, 4
// bytes, little-endian), body. Whatever does not start with the magic is not ours and is left to
// HTTP/2.
//
// Version 2: a body is a row of fields, each with an identifier and a length (2, 4 bytes). Fields
// and kinds of frames that a reader does not know are skipped, so that either end may be the newer
// one; what both ends know beyond this is agreed on by feature bits.
//
// Version 1 (the first wheel, 2.14.1+ar.1): a hello with names of fabrics, an answer with an
// address and a token, a verdict. It knows only shared memory, and refuses what it does not know.
namespace ar_grpc::protocol {

// HTTP/2's preface starts with "PRI", a server's first frame with a length below 2^24.
inline constexpr std::string_view kMagic = "AR-gRPC\n";
inline constexpr uint16_t kVersion = 2;
inline constexpr uint16_t kOldestVersion = 1;
inline constexpr size_t kHeader = 16;
inline constexpr size_t kMaxFrame = 8192;
inline constexpr size_t kMaxBrochures = 8;
inline constexpr size_t kMaxName = 32;    // of a fabric
inline constexpr size_t kMaxText = 1024;  // the rest of a reason is for the log of who wrote it

// Random, one per node: what tells peers apart.
using NodeId = std::array<uint8_t, 16>;

// Bits of Hello::features and Answer::features; both ends have what is set in both.
inline constexpr uint64_t kFeatureKeys = 1;  // offers carry keys (rendezvous_messages.h)
inline constexpr uint64_t kFeatures = kFeatureKeys;

// A fabric that a client can use, and who reaches it there (fabric::Context::Brochure).
struct Brochure {
  std::string fabric;
  std::string bytes;
};

// From the client: the first frame.
struct Hello {
  NodeId node{};
  uint64_t features = 0;
  std::vector<Brochure> brochures;  // in the client's order of preference
};

// From the server: which fabric to attach now. Each answer starts an attempt, with a higher number.
struct Answer {
  NodeId node{};
  uint64_t features = 0;
  uint32_t attempt = 0;
  std::string fabric;  // empty: stay on TCP, because of `reason`
  Token link{};        // of the link that this attempt is to make
  std::string reason;
  // The fabric could not be had now, but may be later: the connection is to be made anew soon.
  bool transient = false;
};

// Either way, between an answer and the verdicts: a frame of the fabric's attachment.
struct Attach {
  uint32_t attempt = 0;
  std::string bytes;
};

// From the client: its end of the fabric is ready, or the attempt failed. Then from the server:
// both ends are ready and the connection leaves TCP now, or the attempt failed.
struct Verdict {
  uint32_t attempt = 0;
  bool established = false;
  std::string reason;  // why not
  // What failed may work later.
  bool transient = false;
};

// Texts are cut to what a frame has room for; brochures that are too many or too long are left out.
std::string Encode(const Hello& hello);
std::string Encode(const Answer& answer);
std::string Encode(const Attach& attach);
std::string Encode(const Verdict& verdict);

enum class FrameKind : uint16_t { kHello = 1, kAnswer = 2, kVerdict = 3, kAttach = 4 };

enum class Boundary {
  kIncomplete,  // more bytes are needed to tell
  kForeign,     // no frame of ours: plain HTTP/2, TLS or something else; or longer than kMaxFrame
  kFrame,       // `size` bytes are one whole frame
};
struct FrameHead {
  Boundary boundary = Boundary::kIncomplete;
  size_t size = 0;
  uint16_t version = 0;
  uint16_t kind = 0;  // a FrameKind, or one that this end does not know
};

// Looks at the first bytes of a connection.
FrameHead FindFrame(std::string_view bytes);

// Decode one whole frame of version 2. kUnimplemented: another version. kInvalidArgument: another
// kind, cut short, a field twice, a field missing that must be there, or one out of bounds.
StatusOr<Hello> DecodeHello(std::string_view frame);
StatusOr<Answer> DecodeAnswer(std::string_view frame);
StatusOr<Attach> DecodeAttach(std::string_view frame);
StatusOr<Verdict> DecodeVerdict(std::string_view frame);

// Version 1.
namespace v1 {

struct Hello {
  NodeId node{};
  std::vector<std::string> fabrics;
};
struct Answer {
  NodeId node{};
  std::string fabric;  // empty: stay on TCP
  std::string address;
  Token token{};
  std::string reason;
};
struct Verdict {
  bool established = false;
  std::string reason;
};

std::string Encode(const Hello& hello);
std::string Encode(const Answer& answer);
std::string Encode(const Verdict& verdict);
StatusOr<Hello> DecodeHello(std::string_view frame);
StatusOr<Answer> DecodeAnswer(std::string_view frame);
StatusOr<Verdict> DecodeVerdict(std::string_view frame);

}  // namespace v1

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_HELLO_H_
