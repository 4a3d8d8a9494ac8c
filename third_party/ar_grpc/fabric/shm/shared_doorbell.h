// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_SHARED_DOORBELL_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_SHARED_DOORBELL_H_

#include <cstdint>
#include <memory>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/doorbell.h"

namespace ar_grpc::fabric::shm {

// The doorbell of a connection between two processes: an eventfd that wakes this end and one that
// wakes the peer. The kernel holds no more than a spinlock while it changes an eventfd, and none
// while it copies from or to the memory of who asks. (A pipe's mutex is held while it does, for as
// long as the peer takes to serve a page fault of its own.)
//
// Both ends have the same open files, so the peer can clear O_NONBLOCK and fill or empty the
// counters whenever it likes, and read() and write() would block then. Neither is used:
//
// - To be woken: an epoll set of this end's own, in which `own` is edge-triggered. What is read is
//   the set, and the counter may be what it likes.
// - To wake, in version 2: one is taken off the counter by a read that does not wait (RWF_NOWAIT,
//   which is the call's and not the open file's). That makes room, which wakes who watches. The
//   counter is a semaphore, and so high at first that it lasts.
// - To wake, in version 1 and where the kernel (before Linux 5.8) knows no such read: a completed
//   asynchronous read of one byte, whose notification the kernel adds to the eventfd
//   (IOCB_FLAG_RESFD). It never waits for room, but costs twice as much.

// Such an eventfd, to be passed by the connector.
StatusOr<UniqueFd> NewBell(uint16_t version);

// kInternal for what is no eventfd; other errors where the system lacks what it takes.
StatusOr<std::unique_ptr<Doorbell>> NewSharedDoorbell(uint16_t version, UniqueFd own,
                                                      UniqueFd peers);

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_SHARED_DOORBELL_H_
