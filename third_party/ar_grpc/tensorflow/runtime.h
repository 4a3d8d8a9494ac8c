// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_RUNTIME_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_RUNTIME_H_

#include "tensorflow/core/platform/status.h"

namespace ar_grpc {

// Makes ready what every `grpc+ar` server and session of this process shares: the log, and the
// environment's settings. InvalidArgument names a variable whose value cannot be used.
tensorflow::Status PrepareClient();

// The same for a server, which also offers its tensors to peers on this machine.
tensorflow::Status PrepareServer();

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_RUNTIME_H_
