// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_BASE_RANDOM_H_
#define THIRD_PARTY_AR_GRPC_BASE_RANDOM_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

// Random bits without a descriptor: std::random_device opens a file, and throws when the
// descriptor table is full. All functions are thread-safe.
namespace ar_grpc {

// Fills `size` bytes with the kernel's random bits (getrandom); false where a sandbox forbids it.
bool FillRandom(void* bytes, size_t size);

// 64 bits for jitter, samples and names, not for secrets: without getrandom they come of the clock,
// the process and a counter.
uint64_t RandomSeed();

// Random; whoever shows it was introduced over the server's own port.
using Token = std::array<uint8_t, 16>;

// Of the kernel's random bits; without getrandom it only names things (fabric/shm is off then).
Token NewToken();

// The digits of a Token, 32 of them.
std::string RandomHex();

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_BASE_RANDOM_H_
