// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_MEMORY_REGION_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_MEMORY_REGION_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/base/work_queue.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"

namespace ar_grpc::fabric::verbs {

class Device;

// Where memory is registered that nobody waits for: it takes milliseconds with some devices.
WorkQueue& Registrar();
// Memory for it that was refused may be had after this time.
inline constexpr std::chrono::seconds kRefusalKept(10);

// A range of this process's memory that the device may access; its pages are pinned. Ends when it
// is destroyed.
class MemoryRegion {
 public:
  // `access` is of abi::kAccess…. kResourceExhausted names the limit that is too small.
  static StatusOr<std::shared_ptr<MemoryRegion>> Register(std::shared_ptr<Device> device,
                                                          const void* start, size_t size,
                                                          int access);
  ~MemoryRegion();
  MemoryRegion(const MemoryRegion&) = delete;

  const std::shared_ptr<Device>& device() const { return device_; }
  uint64_t start() const { return start_; }
  uint64_t size() const { return size_; }
  uint32_t lkey() const { return region_->lkey; }
  uint32_t rkey() const { return region_->rkey; }

 private:
  MemoryRegion(std::shared_ptr<Device> device, abi::MemoryRegion* region, uint64_t start,
               uint64_t size);

  const std::shared_ptr<Device> device_;
  abi::MemoryRegion* const region_;
  const uint64_t start_;
  const uint64_t size_;
};

// The regions in which a Get may land. Thread-safe.
class RegionTable {
 public:
  void Add(uint64_t id, const std::shared_ptr<MemoryRegion>& region);
  void Remove(uint64_t id, uint64_t start);
  // One that has all of [start, start + size); nullptr where none is found.
  std::shared_ptr<MemoryRegion> Find(const void* start, size_t size) const;

 private:
  mutable std::mutex mu_;
  // Only the region that is looked for is held, by whoever found it: a reference to any other would
  // keep its memory accessible after its registration has ended.
  struct Entry {
    uint64_t size;
    std::weak_ptr<MemoryRegion> region;
  };
  // By start and id.
  std::map<std::pair<uint64_t, uint64_t>, Entry> regions_;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_MEMORY_REGION_H_
