// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_ATTACH_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_ATTACH_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/fabric.h"

// What two processes say to each other over a Unix socket to attach: one packet each way, with
// descriptors, then the socket is closed.
//
// Words are little-endian. Both packets start with the magic (4 bytes) and the version (2 bytes).
// Request: token (16), ring bytes (8), region bytes (8). Descriptors: the connection's memory, the
// connector's eventfd, the acceptor's eventfd, and the region if its size is not 0.
// Answer: status code (4), region bytes (8), error text (the rest). Descriptor: the region, if any.
// A version states the layout of the connection's memory, too.
namespace ar_grpc::fabric::shm {

inline constexpr uint16_t kVersion = 1;
inline constexpr size_t kLargestText = 512;

struct Request {
  Token token{};
  uint64_t ring_bytes = 0;
  uint64_t region_bytes = 0;
};

struct Answer {
  Status status;
  uint64_t region_bytes = 0;
};

std::string Encode(const Request& request);
std::string Encode(const Answer& answer);
// kInvalidArgument for what is no such packet, kUnimplemented for another version.
StatusOr<Request> DecodeRequest(const std::string& bytes);
StatusOr<Answer> DecodeAnswer(const std::string& bytes);

struct Packet {
  std::string bytes;
  std::vector<UniqueFd> fds;
};

// For a packet that came with `count` descriptors where another number belongs.
Status WrongCount(size_t count);

// Neither blocks.
Status SendPacket(int socket, const std::string& bytes, const std::vector<int>& fds);
// nullopt: none has come yet. kUnavailable: none will. The descriptors of a packet that gives an
// error are closed.
StatusOr<std::optional<Packet>> ReceivePacket(int socket);

// kOk when `fd` is an eventfd; makes sure that writing to it does not block.
Status CheckEventFd(int fd);

// kPermissionDenied unless the process at the other end of `socket` runs as the same user.
Status CheckPeer(int socket);
Status CheckPeerUid(uid_t peer, uid_t own);

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_ATTACH_H_
