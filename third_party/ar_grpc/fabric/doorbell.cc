// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/doorbell.h"

#include <utility>

#include "third_party/ar_grpc/base/os.h"

namespace ar_grpc::fabric {
namespace {

// By descriptors that WakeUp and ClearWakeUp take.
class DescriptorDoorbell final : public Doorbell {
 public:
  DescriptorDoorbell(std::shared_ptr<const UniqueFd> own, std::shared_ptr<const UniqueFd> peers)
      : own_(std::move(own)), peers_(std::move(peers)) {}
  int fd() const override { return own_->get(); }
  void Clear() override { ClearWakeUp(own_->get()); }
  void WakePeer() override { WakeUp(peers_->get()); }
  void WakeSelf() override { WakeUp(own_->get()); }

 private:
  const std::shared_ptr<const UniqueFd> own_;
  const std::shared_ptr<const UniqueFd> peers_;
};

}  // namespace

StatusOr<std::array<std::unique_ptr<Doorbell>, 2>> NewDoorbells() {
  std::shared_ptr<const UniqueFd> wakes[2];
  for (std::shared_ptr<const UniqueFd>& wake : wakes) {
    StatusOr<UniqueFd> made = NewWakeFd();
    if (!made.ok()) return made.status();
    wake = std::make_shared<const UniqueFd>(std::move(*made));
  }
  std::array<std::unique_ptr<Doorbell>, 2> ends;
  for (size_t end = 0; end < ends.size(); ++end) {
    ends[end] = std::make_unique<DescriptorDoorbell>(wakes[end], wakes[1 - end]);
  }
  return ends;
}

}  // namespace ar_grpc::fabric
