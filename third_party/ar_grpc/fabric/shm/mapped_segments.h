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

// What is mapped of all peers' segments at once, at most. A segment costs its owner nothing before
// it is touched, so without a bound a few peers could announce all of the address space (2^47 bytes
// on x86-64), and the next allocation of this process would fail.
inline constexpr uint64_t kMostMappedBytes = uint64_t{1} << 46;

// What this process has mapped of its peers' segments: each once, however many connections share
// it, so that address space and page tables do not grow with the connections. Thread-safe.
class MappedSegments {
 public:
  // The process's own.
  static MappedSegments& Get();

  // Maps `size` bytes, which is all of the peer's segment `fd`, for reading; they are unmapped when
  // the last owner is gone. kInternal for what is no sealed memfd of just that size,
  // kResourceExhausted where it would be more than kMostMappedBytes in all.
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
