// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_SPIN_H_
#define THIRD_PARTY_AR_GRPC_GRPC_SPIN_H_

#include <poll.h>

// Waiting for a peer without sleeping, for a little while. To wake a sleeping thread takes tens of
// microseconds on a virtual machine, more than a small RPC's own work, and a step is a row of small
// RPCs. So one of gRPC's poller threads looks again and again until a fabric has been silent for
// AR_GRPC_SPIN_US microseconds (100 unless set; 0: never), then sleeps as always. It yields the
// core each time, and an idle process does not spin at all.
namespace ar_grpc {

// As poll(2), with that before it sleeps.
int SpinAndPoll(pollfd* fds, nfds_t count, int timeout_ms);

// A fabric's descriptor, for which it is worth to spin.
void SpinFor(int fd);
void SpinNoMoreFor(int fd);

// A fabric has just moved something.
void SpinFromNow();

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_SPIN_H_
