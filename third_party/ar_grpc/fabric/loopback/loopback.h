// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_LOOPBACK_LOOPBACK_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_LOOPBACK_LOOPBACK_H_

#include <memory>

#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::fabric::loopback {

// Connections inside of this process, for tests of what is above: shm's rings over plain memory. A
// key ends with its registration.
Context& Get();

// Another one, as another process would have it: each reaches all others, but registrations are its
// own. Connections may outlive it.
std::unique_ptr<Context> New();

}  // namespace ar_grpc::fabric::loopback

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_LOOPBACK_LOOPBACK_H_
