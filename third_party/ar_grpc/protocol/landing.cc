// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/landing.h"

namespace ar_grpc::protocol {

bool Landing::Enter() {
  std::lock_guard<std::mutex> lock(mu_);
  if (taken_back_) return false;
  ++writers_;
  return true;
}

void Landing::Leave() {
  std::lock_guard<std::mutex> lock(mu_);
  if (--writers_ == 0 && taken_back_) pthread_cond_broadcast(&left_);
}

void Landing::TakeBack() {
  std::lock_guard<std::mutex> lock(mu_);
  taken_back_ = true;
  while (writers_ > 0) pthread_cond_wait(&left_, mu_.native_handle());
}

bool Landing::taken_back() {
  std::lock_guard<std::mutex> lock(mu_);
  return taken_back_;
}

}  // namespace ar_grpc::protocol
