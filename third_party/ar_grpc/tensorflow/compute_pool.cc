// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/compute_pool.h"

#include <map>
#include <mutex>
#include <utility>

#include "tensorflow/core/common_runtime/process_util.h"
#include "third_party/ar_grpc/base/limits.h"

namespace ar_grpc {
namespace {

constexpr int kFewCores = 4;

}  // namespace

tensorflow::thread::ThreadPool* ComputePoolFor(const tensorflow::SessionOptions& options) {
  static auto* const mu = new std::mutex;
  static auto* const pools = new std::map<std::pair<int, bool>, tensorflow::thread::ThreadPool*>;
  tensorflow::SessionOptions own = options;
  auto* const experimental = own.config.mutable_experimental();
  if (UsableCores() <= kFewCores) experimental->set_disable_thread_spinning(true);
  const std::pair<int, bool> key(tensorflow::NumInterOpThreadsFromSessionOptions(own),
                                 experimental->disable_thread_spinning());
  std::lock_guard<std::mutex> lock(*mu);
  tensorflow::thread::ThreadPool*& pool = (*pools)[key];
  if (pool == nullptr) pool = tensorflow::NewThreadPoolFromSessionOptions(own);
  return pool;
}

}  // namespace ar_grpc
