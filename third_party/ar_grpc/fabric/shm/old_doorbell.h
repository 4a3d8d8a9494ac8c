// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_OLD_DOORBELL_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_OLD_DOORBELL_H_

#include <memory>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/doorbell.h"

namespace ar_grpc::fabric::shm {

// The doorbell of a connection with a peer of version 1: an eventfd that wakes this end and one
// that wakes the peer. Both ends have the same open files, so the peer can clear O_NONBLOCK and
// fill or empty the counters whenever it likes, and read() and write() would block then. Neither is
// used:
//
// - To be woken: an epoll set of this end's own, in which `own` is edge-triggered. What is read is
//   the set, and the counter may grow.
// - To wake: a completed asynchronous read of one byte, whose notification the kernel adds to the
//   eventfd (IOCB_FLAG_RESFD). It never waits for room.
//
// kInternal for what is no eventfd; other errors where the system has no asynchronous I/O to give.
StatusOr<std::unique_ptr<Doorbell>> NewOldDoorbell(UniqueFd own, UniqueFd peers);

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_OLD_DOORBELL_H_
