// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A queue pair that librdmacm connects (iwarp_attachment.cc).

#include <utility>

#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"

namespace ar_grpc::fabric::verbs {

Status QueuePair::BeginConnecting(uint8_t reads) {
  if (device_->InChild()) return device_->NotHere();
  std::lock_guard<std::mutex> lock(mu_);
  if (!status_.ok()) return status_;
  connecting_ = true;
  sends_.Limit(reads);
  return Status();
}

Status QueuePair::EndConnecting(std::shared_ptr<const void> link) {
  std::lock_guard<std::mutex> lock(mu_);
  connecting_ = false;
  link_ = std::move(link);
  if (stopped_) DestroySoon(0);
  return status_;
}

void QueuePair::OnDisconnected() {
  // What came before counts: the peer may have said that it closes.
  Progress();
  OnFailure(device_->name() + ": the peer's end has gone");
}

}  // namespace ar_grpc::fabric::verbs
