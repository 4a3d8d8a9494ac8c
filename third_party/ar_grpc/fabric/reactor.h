// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_REACTOR_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_REACTOR_H_

#include <functional>

#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::fabric {

// Runs `task` on the reactor's thread and waits until it has run: no callback runs beside it. At
// once when called on that thread.
void RunOnReactor(std::function<void()> task);

// Runs `task` on the reactor's thread, soon. kResourceExhausted when that thread cannot be started.
Status StartOnReactor(std::function<void()> task);

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_REACTOR_H_
