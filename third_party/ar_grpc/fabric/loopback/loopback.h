// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_LOOPBACK_LOOPBACK_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_LOOPBACK_LOOPBACK_H_

#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::fabric::loopback {

// Connections inside of this process, for tests of what is above: shm's rings over plain memory.
Context& Get();

}  // namespace ar_grpc::fabric::loopback

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_LOOPBACK_LOOPBACK_H_
