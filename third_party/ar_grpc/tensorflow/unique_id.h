// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_UNIQUE_ID_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_UNIQUE_ID_H_

#include <cstdint>

namespace ar_grpc {

// A nonzero 64-bit id that this process never draws twice; two processes draw the same one with a
// probability of about (ids drawn) / 2^63. Thread-safe, lock-free.
//
// A counter from a random start, through the finalizer of SplitMix64 (Steele, Lea, Flood:
// "Fast splittable pseudorandom number generators", OOPSLA 2014), which is a bijection.
int64_t UniqueId();

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_UNIQUE_ID_H_
