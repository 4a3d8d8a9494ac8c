// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_MEETING_SOCKET_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_MEETING_SOCKET_H_

#include <memory>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/os.h"

// The Unix sockets (SOCK_SEQPACKET) where processes meet to attach.
//
// An address is a comma-separated list of `@name`, an abstract name, which processes reach that
// share a network namespace, and `/path`, for containers that share only a directory.
namespace ar_grpc::fabric::shm {

// Listening sockets; the path, if any, is unlinked with them, but not by a forked child.
class MeetingSockets {
 public:
  // With a path in `directory` unless that is empty. Sweeps what killed processes left in there.
  static StatusOr<std::unique_ptr<MeetingSockets>> Listen(const std::string& directory);
  ~MeetingSockets();

  const std::string& address() const { return address_; }
  // Empty without one.
  const std::string& path() const { return path_; }
  const std::vector<UniqueFd>& sockets() const { return sockets_; }

 private:
  MeetingSockets() : fork_count_(ForkCount()) {}

  std::string address_;
  std::string path_;
  std::vector<UniqueFd> sockets_;
  const uint32_t fork_count_;
};

// The single addresses of a list. kInvalidArgument for one that no Listener could have given: a
// peer's text must not make this process connect to other programs' sockets.
StatusOr<std::vector<std::string>> ParseAddress(const std::string& address);

// Those of a peer's addresses that this process may try: names as they are, and of a path the
// file's name, in `directory`, which is this process's own (AR_GRPC_SHM_DIR; empty: no path at
// all). To look for a file wherever a peer says could wait for a server of its choice, as on NFS or
// FUSE.
std::vector<std::string> AddressesHere(const std::vector<std::string>& single_addresses,
                                       const std::string& directory);

// A connected socket. Does not block: kAborted when the listener's queue is full now. kNotFound for
// a path where nothing is: the peer's directory is another one than this process's, which lasts.
StatusOr<UniqueFd> ConnectSocket(const std::string& single_address);

// Removes from `directory` the sockets of this fabric, of this user and of this host since it
// started, that nobody listens on. All others stay: several hosts may share the directory, and a
// socket refuses who comes from another host as a dead one does. So do those of older releases,
// whose names do not say the host, and all where the system does not tell its boot id.
void SweepStaleSockets(const std::string& directory);

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_MEETING_SOCKET_H_
