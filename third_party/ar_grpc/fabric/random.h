// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_RANDOM_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_RANDOM_H_

#include <cstddef>
#include <cstdint>

// Random bits without a descriptor: std::random_device opens a file, and throws when the
// descriptor table is full. Both functions are thread-safe.
namespace ar_grpc::fabric {

// Fills `size` bytes with the kernel's random bits (getrandom); false where a sandbox forbids it.
bool FillRandom(void* bytes, size_t size);

// 64 bits for jitter, samples and names, not for secrets: without getrandom they come of the clock,
// the process and a counter.
uint64_t RandomSeed();

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_RANDOM_H_
