// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/peer_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>

#include "third_party/ar_grpc/base/work_queue.h"

namespace ar_grpc::fabric::shm {
namespace {

std::atomic<size_t> under_way{0};

void CloseElsewhere(UniqueFd fd) {
  static auto* const queue = new WorkQueue("ar-grpc close", /*most_threads=*/1);
  ++under_way;
  // A task can be copied, a descriptor cannot.
  const auto shared = std::make_shared<UniqueFd>(std::move(fd));
  queue->Run([shared] {
    shared->reset();
    --under_way;
  });
}

bool IsShortToClose(int fd) {
  if (fcntl(fd, F_GET_SEALS) >= 0) return true;
  // The path of a file begins with a slash.
  const StatusOr<std::string> target = DescriptorTarget(fd);
  return target.ok() && target->rfind("anon_inode:", 0) == 0;
}

// Whether a packet lies there. An empty one, which may carry descriptors, too, looks like the end;
// with SO_PASSCRED any packet comes with credentials, for which no room is given.
bool HasUnreceived(int socket) {
  const int on = 1;
  setsockopt(socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
  char byte;
  iovec part = {&byte, sizeof(byte)};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  const ssize_t size = recvmsg(socket, &message, MSG_PEEK | MSG_DONTWAIT);
  return size > 0 || (size == 0 && (message.msg_flags & MSG_CTRUNC) != 0);
}

}  // namespace

UniqueFd KeepIfShortToClose(UniqueFd passed) {
  if (!passed.valid() || IsShortToClose(passed.get())) return passed;
  CloseElsewhere(std::move(passed));
  return UniqueFd();
}

size_t ClosesUnderWay() { return under_way.load(); }

PeerSocket::~PeerSocket() {
  // A fork's copy is not the last one, and must not hang up on the parent's peer.
  if (!fd_.valid() || ForkCount() != fork_count_) return;
  // From here on nothing more comes.
  shutdown(fd_.get(), SHUT_RDWR);
  if (HasUnreceived(fd_.get())) CloseElsewhere(std::move(fd_));
}

}  // namespace ar_grpc::fabric::shm
