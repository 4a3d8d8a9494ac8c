// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_ATTACH_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_ATTACH_H_

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"

// What two processes say to each other over a Unix socket: first to attach, one packet each way,
// then, as long as the connection lives, which of their segments the other may map.
//
// Words are little-endian. All packets start with the magic (4 bytes) and the version (2 bytes), in
// version 2 then the kind (2 bytes).
// Request: token (16), ring bytes (8). Descriptors: the connection's memory, the eventfd that wakes
// the connector, the eventfd that wakes the acceptor (shared_doorbell.h).
// Answer: status code (4), error text (the rest). No descriptor.
// Announcement: segment id (8), bytes (8). Descriptor: the segment, for reading. Each segment once;
// the acceptor's may come before its answer.
//
// Version 1 has no kinds. Its eventfds are rung by adding to them; its request ends with region
// bytes (8); its answer has region bytes (8) before the text; both have one more descriptor where
// these are not 0, and the socket is closed after the answer. We send 0, and do not use what such a
// peer sends. A version states the layout of the connection's memory, too; it is the same in both.
namespace ar_grpc::fabric::shm {

inline constexpr uint16_t kVersion = 2;
inline constexpr uint16_t kOldVersion = 1;
inline constexpr size_t kLargestText = 512;

struct AttachRequest {
  uint16_t version = kVersion;
  Token token{};
  uint64_t ring_bytes = 0;
  uint64_t region_bytes = 0;  // version 1 only
};

struct AttachAnswer {
  uint16_t version = kVersion;
  Status status;
  uint64_t region_bytes = 0;  // version 1 only
};

struct Announcement {
  uint64_t segment = 0;
  uint64_t bytes = 0;
};

std::string Encode(const AttachRequest& request);
std::string Encode(const AttachAnswer& answer);
std::string Encode(const Announcement& announcement);
// kInvalidArgument for what is no such packet, kUnimplemented for a version that is not known.
StatusOr<AttachRequest> DecodeRequest(const std::string& bytes);
StatusOr<AttachAnswer> DecodeAnswer(const std::string& bytes);
StatusOr<Announcement> DecodeAnnouncement(const std::string& bytes);
// Whether a packet says that it is one.
bool IsAnnouncement(const std::string& bytes);

struct Packet {
  std::string bytes;
  // Memory files and eventfds; where the peer passed anything else there is none.
  std::vector<UniqueFd> fds;
};

// For a packet that came with `count` descriptors where another number belongs.
Status WrongCount(size_t count);

// Neither blocks.
Status SendPacket(int socket, const std::string& bytes, const std::vector<int>& fds);
// nullopt: none has come yet. kUnavailable: none will. The descriptors of a packet that gives an
// error are closed.
StatusOr<std::optional<Packet>> ReceivePacket(int socket);

// kPermissionDenied unless the process at the other end of `socket` runs as the same user.
Status CheckPeer(int socket);
Status CheckPeerUid(uid_t peer, uid_t own);

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_ATTACH_H_
