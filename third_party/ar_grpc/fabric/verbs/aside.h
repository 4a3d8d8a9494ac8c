// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ASIDE_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ASIDE_H_

#include <functional>

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc::fabric::verbs {

// Runs what waits for the network in a thread of its own. An error: there is none to be had, and
// the task does not run.
Status RunAside(std::function<void()> task);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ASIDE_H_
