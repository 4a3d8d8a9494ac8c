// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_KEPT_WORKERS_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_KEPT_WORKERS_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "tensorflow/core/distributed_runtime/worker_cache.h"
#include "tensorflow/core/distributed_runtime/worker_cache_wrapper.h"
#include "tensorflow/core/distributed_runtime/worker_interface.h"

namespace ar_grpc {

// A worker cache that makes one worker for a task and keeps it until the cache goes, as that of a
// WorkerSession does. gRPC's makes one for whoever asks, and so for each buffer of a collective:
// with it would come and go what a TensorPeer knows of the task, such as its rank of an MPI job.
//
// The workers' calls need what the cache itself needs, and a caller may use neither after the cache
// has gone: so they may live as long as it does. Thread-safe.
class KeptWorkers final : public tensorflow::WorkerCacheWrapper {
 public:
  explicit KeptWorkers(std::unique_ptr<tensorflow::WorkerCacheInterface> made);
  ~KeptWorkers() override;
  KeptWorkers(const KeptWorkers&) = delete;
  KeptWorkers& operator=(const KeptWorkers&) = delete;

  // nullptr for a task that the cluster does not have. The worker may be used by many at once.
  tensorflow::WorkerInterface* GetOrCreateWorker(const std::string& target) override;
  // Others may use it.
  void ReleaseWorker(const std::string&, tensorflow::WorkerInterface*) override {}

 private:
  const std::unique_ptr<tensorflow::WorkerCacheInterface> made_;
  std::mutex mu_;
  std::map<std::string, tensorflow::WorkerInterface*> workers_;  // guarded by mu_
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_KEPT_WORKERS_H_
