// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_VERBS_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_VERBS_H_

#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::fabric::verbs {

// InfiniBand and RoCE between hosts: SEND, RDMA READ and WRITE over reliable connections, whose
// ends find each other by attach frames. libibverbs is opened when it is first asked for.
Context& Get();

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_VERBS_H_
