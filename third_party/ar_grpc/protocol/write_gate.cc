// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/write_gate.h"

namespace ar_grpc::protocol {

bool WriteGate::BeginWrite() {
  std::lock_guard<std::mutex> lock(mu_);
  if (closed_) return false;
  ++writers_;
  return true;
}

void WriteGate::EndWrite() {
  std::lock_guard<std::mutex> lock(mu_);
  if (--writers_ == 0 && closed_) pthread_cond_broadcast(&ended_);
}

void WriteGate::Close() {
  std::lock_guard<std::mutex> lock(mu_);
  closed_ = true;
  while (writers_ > 0) pthread_cond_wait(&ended_, mu_.native_handle());
}

bool WriteGate::closed() {
  std::lock_guard<std::mutex> lock(mu_);
  return closed_;
}

}  // namespace ar_grpc::protocol
