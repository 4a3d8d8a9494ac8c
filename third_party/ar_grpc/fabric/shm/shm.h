// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_SHM_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_SHM_H_

#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::fabric::shm {

// Processes of one user on one machine, over memfds. See peer_segments.h for what is shared,
// attach.h for what is said to get there and meeting_socket.h for where. Whom a segment was
// exported to keeps it mapped: there a key does not end with its registration.
//
// AR_GRPC_SHM_DIR, when it is set at the first Accept, names a directory that containers share.
Context& Get();

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_SHM_H_
