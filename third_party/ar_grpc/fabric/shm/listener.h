// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_LISTENER_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_LISTENER_H_

#include <memory>
#include <string>

#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::fabric::shm {

// As Context::Listen; also at a path in `directory` unless that is empty.
StatusOr<std::unique_ptr<Listener>> ListenForPeers(const std::string& directory);

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_LISTENER_H_
