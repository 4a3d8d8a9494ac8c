// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_DOORBELL_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_DOORBELL_H_

#include <array>
#include <memory>

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc::fabric {

// How the two ends of a RingConnection wake each other. Thread-safe. No call blocks, whatever the
// peer does to the descriptors that it has, too.
class Doorbell {
 public:
  virtual ~Doorbell() = default;
  // Polls readable after this end was woken, until Clear.
  virtual int fd() const = 0;
  virtual void Clear() = 0;
  virtual void WakePeer() = 0;
  // Wakes this end, as the peer would.
  virtual void WakeSelf() = 0;
};

// Of both ends of a connection within one process.
StatusOr<std::array<std::unique_ptr<Doorbell>, 2>> NewDoorbells();

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_DOORBELL_H_
