// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_COMPUTE_POOL_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_COMPUTE_POOL_H_

#include "tensorflow/core/platform/threadpool.h"
#include "tensorflow/core/public/session_options.h"

namespace ar_grpc {

// The pool for a server with these options: as many threads as inter_op_parallelism_threads and the
// environment ask for, as in stock TensorFlow. They do not spin when they run out of work where the
// configuration forbids it (experimental.disable_thread_spinning) or where four cores or fewer are
// usable: a thread that spins there takes one from the thread that brings the next work. Servers
// with the same of both share a pool; whichever server came first decides nothing else. Pools live
// until the process ends, as the stock pool does.
tensorflow::thread::ThreadPool* ComputePoolFor(const tensorflow::SessionOptions& options);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_COMPUTE_POOL_H_
