// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What only an iWARP device has.

#include <memory>
#include <utility>

#include "third_party/ar_grpc/fabric/verbs/device.h"

namespace ar_grpc::fabric::verbs {

Status Device::StartManager() {
  if (!manager_) {
    StatusOr<std::shared_ptr<ConnectionManager>> manager = ConnectionManager::Open(
        library_, device_name_, [weak = weak_from_this()](const auto& what) {
          if (const std::shared_ptr<Device> self = weak.lock()) self->FailAll(what);
        });
    if (!manager.ok()) return manager.status();
    manager_ = std::move(*manager);
  }
  return manager_->Names().status();
}

}  // namespace ar_grpc::fabric::verbs
