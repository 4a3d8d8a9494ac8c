// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/memory_region.h"

#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"

namespace ar_grpc::fabric::verbs {
namespace {

// Overlapping registrations are rare: where many begin between, a Get registers its own target.
constexpr int kMostLooks = 8;

std::string LockedLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return "unknown";
  if (limit.rlim_cur == RLIM_INFINITY) return "unlimited";
  return std::to_string(limit.rlim_cur / 1024) + " KiB";
}

Status Refused(int error, const Device& device, size_t size) {
  const Status status =
      DeviceStatus(error, "registering " + std::to_string(size) + " bytes with " + device.name());
  if (error != ENOMEM && error != EAGAIN) return status;
  return Status(
      StatusCode::kResourceExhausted,
      status.message() + " (locked memory is limited to " + LockedLimit() + ": raise `ulimit -l`)");
}

}  // namespace

WorkQueue& Registrar() {
  // Never destroyed: connections come and go until the very end.
  static auto* const queue = new WorkQueue("ar-grpc lock", /*most_threads=*/1);
  return *queue;
}

StatusOr<std::shared_ptr<MemoryRegion>> MemoryRegion::Register(std::shared_ptr<Device> device,
                                                               const void* start, size_t size,
                                                               int access) {
  if (device->InChild()) return device->NotHere();
  if (size > device->limits().region_bytes) {
    return Status(StatusCode::kResourceExhausted,
                  device->name() + " registers " + std::to_string(device->limits().region_bytes) +
                      " bytes at most at once, not " + std::to_string(size));
  }
  abi::MemoryRegion* const region =
      device->library().reg_mr(device->domain(), const_cast<void*>(start), size, access);
  if (region == nullptr) return Refused(errno, *device, size);
  const uint64_t first = reinterpret_cast<uintptr_t>(start);
  return std::shared_ptr<MemoryRegion>(new MemoryRegion(std::move(device), region, first, size));
}

MemoryRegion::MemoryRegion(std::shared_ptr<Device> device, abi::MemoryRegion* region,
                           uint64_t start, uint64_t size)
    : device_(std::move(device)), region_(region), start_(start), size_(size) {}

MemoryRegion::~MemoryRegion() {
  if (device_->InChild()) return;  // the parent's: its device would take it for the parent's word
  if (const int error = device_->library().dereg_mr(region_); error != 0) {
    Log(Severity::kWarning,
        ErrnoStatus(error, "deregistering memory of " + device_->name()).message());
  }
}

void RegionTable::Add(uint64_t id, const std::shared_ptr<MemoryRegion>& region) {
  std::lock_guard<std::mutex> lock(mu_);
  regions_[{region->start(), id}] = {region->size(), region};
}

void RegionTable::Remove(uint64_t id, uint64_t start) {
  std::lock_guard<std::mutex> lock(mu_);
  regions_.erase({start, id});
}

std::shared_ptr<MemoryRegion> RegionTable::Find(const void* start, size_t size) const {
  const uint64_t first = reinterpret_cast<uintptr_t>(start);
  std::lock_guard<std::mutex> lock(mu_);
  auto next = regions_.upper_bound({first, UINT64_MAX});
  for (int i = 0; i < kMostLooks && next != regions_.begin(); ++i) {
    const auto& [place, entry] = *--next;
    const uint64_t offset = first - place.first;
    if (offset > entry.size || size > entry.size - offset) continue;
    if (std::shared_ptr<MemoryRegion> region = entry.region.lock()) return region;
  }
  return nullptr;
}

}  // namespace ar_grpc::fabric::verbs
