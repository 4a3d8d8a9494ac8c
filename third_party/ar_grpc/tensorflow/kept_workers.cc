// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/kept_workers.h"

#include <utility>

namespace ar_grpc {

KeptWorkers::KeptWorkers(std::unique_ptr<tensorflow::WorkerCacheInterface> made)
    : WorkerCacheWrapper(made.get()), made_(std::move(made)) {}

KeptWorkers::~KeptWorkers() {
  // Before what they were made by: they refer to its log.
  for (const auto& [target, worker] : workers_) made_->ReleaseWorker(target, worker);
}

tensorflow::WorkerInterface* KeptWorkers::GetOrCreateWorker(const std::string& target) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto kept = workers_.find(target);
  if (kept != workers_.end()) return kept->second;
  tensorflow::WorkerInterface* const worker = made_->GetOrCreateWorker(target);
  if (worker != nullptr) workers_.emplace(target, worker);
  return worker;
}

}  // namespace ar_grpc
