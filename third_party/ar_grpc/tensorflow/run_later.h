// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_RUN_LATER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_RUN_LATER_H_

#include <functional>

namespace ar_grpc {

// Runs `task` soon in a thread of the library's own, for callbacks of TensorFlow's that may take
// locks or block and so must not run where they fall due: on a poller, on the reactor, under a
// lock. Env::SchedClosure, which starts a thread for each, ends the process where there is none to
// be had. Tasks run one after another in up to a few threads. Where not even the first thread can
// be started the reactor tries again until it can.
void RunLater(std::function<void()> task);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_RUN_LATER_H_
