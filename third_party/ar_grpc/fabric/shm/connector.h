// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_CONNECTOR_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_CONNECTOR_H_

#include <functional>

#include "third_party/ar_grpc/fabric/token_attachment.h"

namespace ar_grpc::fabric::shm {

// As ConnectByFrame. It tries until it is ended: whoever asks has a deadline of his own.
std::function<void()> ConnectToPeer(const TokenFrame& frame, ConnectDone done);

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_CONNECTOR_H_
