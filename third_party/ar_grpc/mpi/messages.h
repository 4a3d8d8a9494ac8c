// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_MESSAGES_H_
#define THIRD_PARTY_AR_GRPC_MPI_MESSAGES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"

// What two servers of grpc+mpi tell each other in their gRPC calls.
//
//   receiver  says hello: its job and rank; the sender answers with its own
//   receiver  watches: a call that stays open as long as both live, so that each learns of the
//             other's death by TCP, which MPI need not notice; and says bye before it closes it
//   receiver  asks: its job, its rank and a tag, with the request for a tensor
//   sender    begins to send over MPI, and says how much with the response
//
// A message travels with its type's name, and a change of its bytes gets a new name.
namespace ar_grpc::mpi {

// A rank of a job; without the job a rank would mean nothing to another process.
struct Hello {
  static constexpr char kType[] = "ar-grpc/mpi-hello.1";
  static constexpr uint64_t kBytes = sizeof(Token) + sizeof(uint32_t);
  Token job{};
  uint32_t rank = 0;
};

struct Watch {
  static constexpr char kType[] = "ar-grpc/mpi-watch.1";
  Token id{};  // of this watch, random
  Token job{};
  uint32_t rank = 0;
};

struct Bye {
  static constexpr char kType[] = "ar-grpc/mpi-bye.1";
  Token watch{};
};

struct Ask {
  static constexpr char kType[] = "ar-grpc/mpi-ask.1";
  Token job{};
  uint32_t rank = 0;
  uint32_t tag = 0;
};

struct Sent {
  static constexpr char kType[] = "ar-grpc/mpi-sent.1";
  uint64_t size = 0;
};

std::string Encode(const Hello& hello);
std::string Encode(const Watch& watch);
std::string Encode(const Bye& bye);
std::string Encode(const Ask& ask);
std::string Encode(const Sent& sent);

// kInvalidArgument: cut short, too long, or a rank or tag that no MPI has.
StatusOr<Hello> DecodeHello(std::string_view bytes);
StatusOr<Watch> DecodeWatch(std::string_view bytes);
StatusOr<Bye> DecodeBye(std::string_view bytes);
StatusOr<Ask> DecodeAsk(std::string_view bytes);
StatusOr<Sent> DecodeSent(std::string_view bytes);

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_MESSAGES_H_
