// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_REGISTRATION_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_REGISTRATION_H_

#include <cstdint>
#include <memory>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"
#include "third_party/ar_grpc/fabric/verbs/memory_region.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs {

// A memory region that peers may access. A Get of this process that lands in it holds the region:
// peers can access it until that one has ended, too.
class VerbsRegistration final : public Registration {
 public:
  static StatusOr<std::shared_ptr<Registration>> Make(std::shared_ptr<Device> device,
                                                      std::shared_ptr<memory::Segment> segment,
                                                      uint64_t offset, uint64_t size,
                                                      Access access);
  ~VerbsRegistration() override;

  const std::shared_ptr<memory::Segment>& segment() const override { return segment_; }
  uint64_t offset() const override { return offset_; }
  uint64_t size() const override { return region_->size(); }
  bool Retire() override;
  bool usable() const override { return !device().failed(); }

  const Device& device() const { return *region_->device(); }
  Key KeySealedWith(uint64_t seal) const;

 private:
  VerbsRegistration(std::shared_ptr<memory::Segment> segment, uint64_t offset,
                    std::shared_ptr<MemoryRegion> region, Access access);

  const std::shared_ptr<memory::Segment> segment_;
  const uint64_t offset_;
  const Access access_;
  const uint64_t id_;
  const std::shared_ptr<MemoryRegion> region_;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_REGISTRATION_H_
