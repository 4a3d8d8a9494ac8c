// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MEMORY_SHARED_MEMORY_H_
#define THIRD_PARTY_AR_GRPC_MEMORY_SHARED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/status.h"

// Memory that processes share by descriptor. All of it is a memfd sealed against shrinking, so that
// no access to it can be SIGBUS.
namespace ar_grpc::memory {

struct SharedMemory {
  UniqueFd fd;
  std::shared_ptr<uint8_t> data;
};

// A memfd of `size` zeros, mapped for writing. Its size is fixed: F_SEAL_SHRINK|GROW|SEAL.
StatusOr<SharedMemory> CreateShared(size_t size);

// kOk when a peer's descriptor is a memfd of just this size that nobody can shrink any more.
Status CheckShared(int fd, uint64_t size);

}  // namespace ar_grpc::memory

#endif  // THIRD_PARTY_AR_GRPC_MEMORY_SHARED_MEMORY_H_
