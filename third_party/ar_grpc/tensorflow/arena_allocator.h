// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_ARENA_ALLOCATOR_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_ARENA_ALLOCATOR_H_

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc {

// The variable of the environment that turns the arena off ("0").
inline constexpr char kArenaSwitch[] = "AR_GRPC_ARENA";
// What to tell who has none.
inline constexpr char kWithoutArena[] =
    "Large tensors then take longer: they are copied more often, registered anew for each "
    "transfer, or have their pages faulted in anew in each step.";

// When this library is loaded it puts an allocator in front of the one that TensorFlow would use.
// It gives memory of CpuArena for large tensors once that is activated; for all others, and until
// then, it passes every call on.
//
// OK, or why it is not there: AR_GRPC_ARENA=0 turns it off, and TensorFlow takes no allocator any
// more once it has allocated a tensor.
const Status& ArenaAllocatorInstalled();

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_ARENA_ALLOCATOR_H_
