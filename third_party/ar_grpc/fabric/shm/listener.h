// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_LISTENER_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_LISTENER_H_

#include <memory>
#include <string>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/token_attachment.h"

namespace ar_grpc::fabric::shm {

// Listens at an abstract name, and at a path in `directory` unless that is empty. Destroying the
// listener waits for the reactor's callbacks.
StatusOr<std::shared_ptr<TokenListener>> ListenForPeers(const std::string& directory);

// The process's own listener, made at the first call with AR_GRPC_SHM_DIR as it is then. Lives
// until the process ends, when its path goes; a forked child makes its own.
StatusOr<std::shared_ptr<TokenListener>> ProcessListener();

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_LISTENER_H_
