// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_H_

#include "third_party/ar_grpc/protocol/cost_model.h"

namespace ar_grpc::protocol {

// Measures this machine for shared memory: copies, system calls and wake-ups between two threads.
// Takes about ten milliseconds; done once a process.
const Figures& MeasuredSharedMemory();

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_H_
