// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_BASE_KEEP_ALIVE_H_
#define THIRD_PARTY_AR_GRPC_BASE_KEEP_ALIVE_H_

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc {

// How long a TCP connection on which nothing moves may stay unanswered. A host that dies or is cut
// off sends no FIN, and an end that only waits for its peer would wait for ever: so the kernel asks
// the peer's kernel, first after kKeepAliveIdleSeconds of silence, then kKeepAliveProbes times in
// all, kKeepAliveIntervalSeconds apart, and ends the connection with ETIMEDOUT when none of them
// was answered. It is the peer's kernel that answers, so a process that is stopped or busy stays
// connected however long, and a network that is cut for less than the probes' 15 s does, too. Three
// small packets in half a minute from each idle connection are no load.
inline constexpr int kKeepAliveIdleSeconds = 10;
inline constexpr int kKeepAliveIntervalSeconds = 3;
inline constexpr int kKeepAliveProbes = 5;
// From the last that was heard of a peer to the end of the connection, at most.
inline constexpr int kKeepAliveSeconds =
    kKeepAliveIdleSeconds + kKeepAliveProbes * kKeepAliveIntervalSeconds;

// Sets that for a TCP socket; of any other kind there is nothing to do. What was sent and is not
// acknowledged is none of its concern: while there is such, no probe goes out, and the kernel's
// retransmissions decide (tcp_retries2). Not TCP_USER_TIMEOUT, which would bound those, too: it
// also ends a connection whose peer's process is stopped with a full buffer, and that process may
// go on.
Status KeepAlive(int fd);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_BASE_KEEP_ALIVE_H_
