// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_AR_HANDSHAKER_H_
#define THIRD_PARTY_AR_GRPC_GRPC_AR_HANDSHAKER_H_

#include <grpc/support/port_platform.h>

#include "src/core/lib/config/core_configuration.h"

namespace ar_grpc {

// Makes the clients and servers of this gRPC whose arguments carry a node (channel_args.h) say
// hello after TCP connects, and swap in the AR endpoint where both ends can. It runs before the
// security handshakers, so TLS sits on top. gRPC's BuildCoreConfiguration calls it.
void RegisterHandshakers(grpc_core::CoreConfiguration::Builder* builder);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_AR_HANDSHAKER_H_
