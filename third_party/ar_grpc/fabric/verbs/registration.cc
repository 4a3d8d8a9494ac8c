// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/registration.h"

#include <atomic>
#include <utility>

#include "third_party/ar_grpc/fabric/verbs/remote_key.h"

namespace ar_grpc::fabric::verbs {
namespace {

std::atomic<uint64_t> last_id{0};

}  // namespace

StatusOr<std::shared_ptr<Registration>> VerbsRegistration::Make(
    std::shared_ptr<Device> device, std::shared_ptr<memory::Segment> segment, uint64_t offset,
    uint64_t size, Access access) {
  if (!segment || size == 0 || offset > segment->size() || size > segment->size() - offset) {
    return Status(StatusCode::kInvalidArgument, "the range is not within the segment");
  }
  int allowed = abi::kAccessLocalWrite | abi::kAccessRemoteRead;
  if (access == Access::kWrite) allowed |= abi::kAccessRemoteWrite;
  StatusOr<std::shared_ptr<MemoryRegion>> region =
      MemoryRegion::Register(std::move(device), segment->data() + offset, size, allowed);
  if (!region.ok()) return region.status();
  return std::shared_ptr<Registration>(
      new VerbsRegistration(std::move(segment), offset, std::move(*region), access));
}

VerbsRegistration::VerbsRegistration(std::shared_ptr<memory::Segment> segment, uint64_t offset,
                                     std::shared_ptr<MemoryRegion> region, Access access)
    : segment_(std::move(segment)),
      offset_(offset),
      access_(access),
      id_(++last_id),
      region_(std::move(region)) {
  region_->device()->regions().Add(id_, region_);
}

VerbsRegistration::~VerbsRegistration() {
  // In a child any thread of the parent may hold the table's lock.
  if (!device().InChild()) region_->device()->regions().Remove(id_, region_->start());
}

bool VerbsRegistration::Retire() {
  // First, so that none that has not found it yet does: the count then only falls.
  region_->device()->regions().Remove(id_, region_->start());
  return region_.use_count() == 1;
}

Key VerbsRegistration::KeySealedWith(uint64_t seal) const {
  RemoteKey key;
  key.registration_id = id_;
  key.address = region_->start();
  key.size = region_->size();
  key.rkey = region_->rkey();
  key.access = access_;
  return Encode(key, seal);
}

}  // namespace ar_grpc::fabric::verbs
