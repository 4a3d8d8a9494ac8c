// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/measure_socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace ar_grpc::protocol::measuring {
namespace {

int64_t Moved(ssize_t bytes) {
  if (bytes >= 0) return bytes;
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
}

sockaddr* Plain(sockaddr_in* address) { return reinterpret_cast<sockaddr*>(address); }

UniqueFd NewSocket() {
  return UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

// Over the loopback device a connection waits for nobody's accept, but it does wait where others
// have filled the listener's queue: then it is given up.
bool Connect(int fd, sockaddr_in* address, Clock::time_point deadline) {
  if (connect(fd, Plain(address), sizeof(*address)) == 0) return true;
  if (errno != EINPROGRESS) return false;
  pollfd waits = {fd, POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof(error);
  return poll(&waits, 1, MsUntil(deadline)) == 1 &&
         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

// Who connected to the listener may be anybody; who was accepted must be the other end.
bool AreOneConnection(int from, int to) {
  sockaddr_in own = {};
  sockaddr_in peer = {};
  socklen_t own_size = sizeof(own);
  socklen_t peer_size = sizeof(peer);
  return getsockname(from, Plain(&own), &own_size) == 0 &&
         getpeername(to, Plain(&peer), &peer_size) == 0 && own.sin_port == peer.sin_port &&
         own.sin_addr.s_addr == peer.sin_addr.s_addr;
}

// Its `to` is not valid where it cannot be had.
SocketPair OverTcp(Clock::time_point deadline) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  SocketPair pair;
  const UniqueFd listener = NewSocket();
  pair.from = NewSocket();
  if (!listener.valid() || !pair.from.valid() || bind(listener.get(), Plain(&address), size) != 0 ||
      listen(listener.get(), 1) != 0 || getsockname(listener.get(), Plain(&address), &size) != 0 ||
      !Connect(pair.from.get(), &address, deadline)) {
    return pair;
  }
  pair.to = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const int on = 1;
  for (const int fd : {pair.from.get(), pair.to.get()}) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  if (!AreOneConnection(pair.from.get(), pair.to.get())) pair.to.reset();
  return pair;
}

}  // namespace

int64_t SocketWire::Write(const iovec* parts, int count) {
  msghdr message = {};
  message.msg_iov = const_cast<iovec*>(parts);
  message.msg_iovlen = static_cast<size_t>(count);
  return Moved(sendmsg(from_, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

int64_t SocketWire::Read(void* into, size_t size) {
  const ssize_t read = recv(to_, into, size, MSG_DONTWAIT);
  return read == 0 ? -1 : Moved(read);
}

SocketPair ConnectedSockets(Clock::time_point deadline) {
  SocketPair pair = OverTcp(deadline);
  if (pair.to.valid()) return pair;
  int both[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, both) != 0) return {};
  return {UniqueFd(both[0]), UniqueFd(both[1])};
}

bool Tell(int fd) { return send(fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1; }

bool Hear(int fd, int timeout_ms) {
  char byte;
  return Readable(fd, timeout_ms) && recv(fd, &byte, 1, MSG_DONTWAIT) == 1;
}

}  // namespace ar_grpc::protocol::measuring
