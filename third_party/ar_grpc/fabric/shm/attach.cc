// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/attach.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "third_party/ar_grpc/base/wire.h"
#include "third_party/ar_grpc/fabric/shm/peer_socket.h"

namespace ar_grpc::fabric::shm {
namespace {

constexpr uint32_t kMagic = 0x48535241;  // "ARSH"
constexpr size_t kLargestPacket = 1024;
// The most that the kernel passes at once: with room for all, a cut control message can only mean
// that this process has no descriptors left.
constexpr size_t kMostFds = 253;

enum Kind : uint16_t { kRequest = 1, kAnswer = 2, kAnnouncement = 3 };

Writer StartPacket(uint16_t version, Kind kind) {
  Writer writer;
  writer.Put(kMagic);
  writer.Put(version);
  if (version != kOldVersion) writer.Put(static_cast<uint16_t>(kind));
  return writer;
}

Status TakeHeader(Reader* reader, Kind expected, uint16_t* version) {
  const Status wrong(StatusCode::kInvalidArgument, "not a shared-memory attach packet");
  uint32_t magic = 0;
  if (!reader->Get(&magic) || !reader->Get(version) || magic != kMagic) return wrong;
  if (*version == kOldVersion) return Status();
  if (*version != kVersion) {
    return Status(StatusCode::kUnimplemented,
                  "the peer speaks version " + std::to_string(*version) +
                      " of shared memory, this end version " + std::to_string(kVersion));
  }
  uint16_t kind = 0;
  return reader->Get(&kind) && kind == expected ? Status() : wrong;
}

Status Malformed() {
  return Status(StatusCode::kInvalidArgument, "a shared-memory attach packet of a wrong length");
}

}  // namespace

std::string Encode(const AttachRequest& request) {
  Writer writer = StartPacket(request.version, kRequest);
  writer.Put(request.token);
  writer.Put(request.ring_bytes);
  if (request.version == kOldVersion) writer.Put(request.region_bytes);
  return writer.Take();
}

std::string Encode(const AttachAnswer& answer) {
  Writer writer = StartPacket(answer.version, kAnswer);
  writer.Put(static_cast<uint32_t>(answer.status.code()));
  if (answer.version == kOldVersion) writer.Put(answer.region_bytes);
  return writer.Take() + answer.status.message().substr(0, kLargestText);
}

std::string Encode(const Announcement& announcement) {
  Writer writer = StartPacket(kVersion, kAnnouncement);
  writer.Put(announcement.segment);
  writer.Put(announcement.bytes);
  return writer.Take();
}

StatusOr<AttachRequest> DecodeRequest(const std::string& bytes) {
  Reader reader(bytes);
  AttachRequest request;
  if (Status status = TakeHeader(&reader, kRequest, &request.version); !status.ok()) return status;
  const bool old = request.version == kOldVersion;
  if (!reader.Get(&request.token) || !reader.Get(&request.ring_bytes) ||
      (old && !reader.Get(&request.region_bytes)) || !reader.AtEnd()) {
    return Malformed();
  }
  return request;
}

StatusOr<AttachAnswer> DecodeAnswer(const std::string& bytes) {
  Reader reader(bytes);
  AttachAnswer answer;
  if (Status status = TakeHeader(&reader, kAnswer, &answer.version); !status.ok()) return status;
  const bool old = answer.version == kOldVersion;
  uint32_t code = 0;
  if (!reader.Get(&code) || (old && !reader.Get(&answer.region_bytes))) return Malformed();
  const std::string text(reader.Rest());
  if (text.size() > kLargestText) return Malformed();
  if (code == 0) return answer;
  // A code that this end does not know still is an error.
  const bool known = code <= static_cast<uint32_t>(StatusCode::kUnavailable);
  answer.status = Status(known ? static_cast<StatusCode>(code) : StatusCode::kInternal,
                         "the peer refused: " + text);
  return answer;
}

StatusOr<Announcement> DecodeAnnouncement(const std::string& bytes) {
  Reader reader(bytes);
  uint16_t version = 0;
  if (Status status = TakeHeader(&reader, kAnnouncement, &version); !status.ok()) return status;
  Announcement announcement;
  if (version == kOldVersion || !reader.Get(&announcement.segment) ||
      !reader.Get(&announcement.bytes) || !reader.AtEnd()) {
    return Malformed();
  }
  return announcement;
}

bool IsAnnouncement(const std::string& bytes) {
  Reader reader(bytes);
  uint16_t version = 0;
  return TakeHeader(&reader, kAnnouncement, &version).ok() && version == kVersion;
}

Status WrongCount(size_t count) {
  return Status(StatusCode::kInvalidArgument, "a shared-memory attach packet with " +
                                                  std::to_string(count) +
                                                  " descriptors, not as many as it states");
}

Status SendPacket(int socket, const std::string& bytes, const std::vector<int>& fds) {
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<char> control(CMSG_SPACE(fds.size() * sizeof(int)));
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? ErrnoStatus(errno, "sending to the peer's shared-memory socket") : Status();
}

StatusOr<std::optional<Packet>> ReceivePacket(int socket) {
  std::array<char, kLargestPacket> bytes;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostFds * sizeof(int))> control;
  iovec part = {bytes.data(), bytes.size()};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size;
  do {
    size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::optional<Packet>();
  if (size < 0) return ErrnoStatus(errno, "receiving from the peer's shared-memory socket");

  Packet packet;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      packet.fds.push_back(KeepIfShortToClose(UniqueFd(fd)));
    }
  }
  if (size == 0) {
    return Status(StatusCode::kUnavailable, "the peer closed its shared-memory socket");
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return Status(StatusCode::kResourceExhausted,
                  "no room for the peer's descriptors (descriptor table full: raise `ulimit -n`)");
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) return Malformed();
  packet.bytes.assign(bytes.data(), static_cast<size_t>(size));
  return std::optional<Packet>(std::move(packet));
}

Status CheckPeer(int socket) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return ErrnoStatus(errno, "SO_PEERCRED");
  }
  return CheckPeerUid(peer.uid, geteuid());
}

Status CheckPeerUid(uid_t peer, uid_t own) {
  if (peer == own) return Status();
  return Status(StatusCode::kPermissionDenied, "the peer runs as user " + std::to_string(peer) +
                                                   ", this process as user " + std::to_string(own));
}

}  // namespace ar_grpc::fabric::shm
