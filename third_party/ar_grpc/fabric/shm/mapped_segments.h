// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_MAPPED_SEGMENTS_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_MAPPED_SEGMENTS_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc::fabric::shm {

// What this process has mapped of its peers' segments: each once, however many connections share
// it, so that address space and page tables do not grow with the connections. Thread-safe.
class MappedSegments {
 public:
  // The process's own.
  static MappedSegments& Get();

  // Maps `size` bytes, which is all of the peer's segment `fd`, for reading; they are unmapped when
  // the last owner is gone. kInternal for what is no sealed memfd of just that size.
  StatusOr<std::shared_ptr<const uint8_t>> Map(int fd, uint64_t size);

 private:
  struct Entry {
    std::weak_ptr<const uint8_t> data;
    uint64_t size;
  };
  // By device and inode, whose number is unique while it is mapped. Guarded by ForkSafeMutex().
  std::map<std::pair<dev_t, ino_t>, Entry> mapped_;
};

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_MAPPED_SEGMENTS_H_
