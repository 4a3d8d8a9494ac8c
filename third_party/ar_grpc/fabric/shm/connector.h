// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_CONNECTOR_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_CONNECTOR_H_

#include <string>

#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::fabric::shm {

// As Context::Connect.
Status ConnectToPeer(const std::string& address, const Token& token, int timeout_ms,
                     ConnectDone done);

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_CONNECTOR_H_
