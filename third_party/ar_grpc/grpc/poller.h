// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_POLLER_H_
#define THIRD_PARTY_AR_GRPC_GRPC_POLLER_H_

#include <optional>

#include "third_party/ar_grpc/protocol/release_batch.h"

namespace ar_grpc {

// Makes gRPC's `poll` engine post a thread's releases and spin for a while before the thread
// sleeps; other engines go on as they are. Idempotent.
void InstallPoller();

// For a thread that does nothing but wait for a completion queue and handle its events, none of
// which it waits in: the releases of the events between two sleeps are told together. The queue
// must have been made, as that chooses gRPC's engine; with another one than `poll` each release is
// told at once.
class BatchedReleases {
 public:
  BatchedReleases();

 private:
  std::optional<protocol::ReleaseBatch> batch_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_POLLER_H_
