// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_PEER_SOCKET_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_PEER_SOCKET_H_

#include <cstddef>
#include <cstdint>
#include <utility>

#include "third_party/ar_grpc/base/os.h"

// What a peer passes over a Unix socket is closed here in the end, and how long that takes is up to
// the peer: close() of the last copy of a TCP socket waits as long as its SO_LINGER says, that of a
// file of a FUSE server as long as the server likes. So nothing that a stranger passed is closed by
// a thread that others wait for, unless it is known to be short.
namespace ar_grpc::fabric::shm {

// Keeps memory files and what has no file (eventfds): their close() is short. Anything else is
// closed by a thread of its own.
UniqueFd KeepIfShortToClose(UniqueFd passed);

// How many descriptors wait to be closed by that thread. Who accepts more from strangers meanwhile
// looks at it, lest they fill the descriptor table.
size_t ClosesUnderWay();
inline constexpr size_t kMostClosesUnderWay = 256;

// A Unix socket to a peer. What the peer has sent and nobody has received is closed with it.
class PeerSocket {
 public:
  PeerSocket() = default;
  explicit PeerSocket(UniqueFd fd) : fd_(std::move(fd)) {}
  PeerSocket(PeerSocket&&) noexcept = default;
  PeerSocket& operator=(PeerSocket&&) = delete;
  ~PeerSocket();

  int get() const { return fd_.get(); }

 private:
  UniqueFd fd_;
  const uint32_t fork_count_ = ForkCount();
};

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_PEER_SOCKET_H_
