// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/base/keep_alive.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "third_party/ar_grpc/base/os.h"

namespace ar_grpc {
namespace {

bool IsTcp(int fd) {
  int protocol = 0;
  socklen_t size = sizeof(protocol);
  return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 && protocol == IPPROTO_TCP;
}

bool Set(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

}  // namespace

Status KeepAlive(int fd) {
  if (!IsTcp(fd)) return Status();
  // The times first: a connection with probes by the system's own is asked after two hours.
  const bool set = Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds) &&
                   Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds) &&
                   Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveProbes) &&
                   Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  return set ? Status() : ErrnoStatus(errno, "asking for keep-alive probes of a TCP connection");
}

}  // namespace ar_grpc
