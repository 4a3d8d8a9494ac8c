// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_VERBS_MESSAGES_H_
#define THIRD_PARTY_AR_GRPC_VERBS_MESSAGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"

// What two servers of grpc+verbs tell each other: in their gRPC calls, and in notes over the RDMA
// connection itself.
//
//   receiver  introduces itself: calls that carry the frames of an attachment (fabric.h) each way,
//             until both ends have the connection; its name is a token of the receiver's
//   receiver  asks: with the request for a tensor it says where the bytes may be written, as much
//             room as the last tensor of that rendezvous key took
//   sender    writes them there by RDMA WRITE, says so by a note behind them, and answers; where
//             there is too little room it answers how much it takes, and holds the tensor
//   receiver  fetches what is held, with enough room; or drops what it asked for, at any time
//
// A message travels with its type's name, and a change of its bytes gets a new name.
namespace ar_grpc::verbs {

struct Introduce {
  static constexpr char kType[] = "ar-grpc/verbs-introduce.1";
  Token link{};
  std::string frame;  // for the sender's attachment; empty: there is none now
};

// The answer, of a fixed size, which a chunk of a call has.
struct Introduced {
  static constexpr uint64_t kBytes = 1 + 2 + fabric::kLargestAttachFrame;
  bool made = false;  // the sender's end of the connection
  std::string frame;  // for the receiver's attachment; empty: there is none now
};

// Memory of the receiver's that the sender may write to, once.
struct Destination {
  fabric::Key key;
  uint64_t offset = 0;
  uint64_t size = 0;
};

struct Ask {
  static constexpr char kType[] = "ar-grpc/verbs-ask.1";
  Token link{};
  uint64_t transfer = 0;  // the receiver's name of it on this link, used for no other
  std::optional<Destination> destination;
};

// The answer: the bytes were written, or are just being, and a note comes behind them.
struct Written {
  static constexpr char kType[] = "ar-grpc/verbs-written.1";
  uint64_t size = 0;
};

// The answer: there was not enough room.
struct Held {
  static constexpr char kType[] = "ar-grpc/verbs-held.1";
  uint64_t size = 0;
};

struct Fetch {
  static constexpr char kType[] = "ar-grpc/verbs-fetch.1";
  Token link{};
  uint64_t asked = 0;     // the transfer that was asked for
  uint64_t transfer = 0;  // another name, for the note
  Destination destination;
};

struct Drop {
  static constexpr char kType[] = "ar-grpc/verbs-drop.1";
  Token link{};
  uint64_t asked = 0;
  uint64_t offered = 0;  // the transfer whose room the receiver wants back
};

// Over the RDMA connection. What was written before a note is in memory when the note comes.
struct Note {
  uint64_t transfer = 0;  // 0: none, the sender only shows that it lives
  bool written = false;   // false: nothing was, or will be; the destination is the receiver's again
  uint64_t size = 0;      // bytes, where they were written
};

std::string Encode(const Introduce& introduce);
std::string Encode(const Introduced& introduced);
std::string Encode(const Ask& ask);
std::string Encode(const Written& written);
std::string Encode(const Held& held);
std::string Encode(const Fetch& fetch);
std::string Encode(const Drop& drop);
fabric::Message Encode(const Note& note);

// kInvalidArgument: cut short, too long, or a frame or key that is longer than any.
StatusOr<Introduce> DecodeIntroduce(std::string_view bytes);
StatusOr<Introduced> DecodeIntroduced(std::string_view bytes);
StatusOr<Ask> DecodeAsk(std::string_view bytes);
StatusOr<Written> DecodeWritten(std::string_view bytes);
StatusOr<Held> DecodeHeld(std::string_view bytes);
StatusOr<Fetch> DecodeFetch(std::string_view bytes);
StatusOr<Drop> DecodeDrop(std::string_view bytes);
StatusOr<Note> DecodeNote(const fabric::Message& message);

}  // namespace ar_grpc::verbs

#endif  // THIRD_PARTY_AR_GRPC_VERBS_MESSAGES_H_
