// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_REMOTE_MEMORY_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_REMOTE_MEMORY_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::fabric {

// What a RingConnection knows of both ends' exported memory: how keys are made and what they mean.
// Thread-safe; nothing here blocks.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  // As Connection::Export.
  virtual StatusOr<Key> Export(const std::shared_ptr<Registration>& registration) = 0;
  // `size` bytes at `offset` of what the peer exported under `key`. kInvalidArgument for a key or
  // a range that it did not give. The lease holds the memory, not the peer's registration.
  virtual StatusOr<Lease> Find(const Key& key, uint64_t offset, size_t size) = 0;
  // The same of what it exported with Access::kWrite.
  virtual StatusOr<std::shared_ptr<uint8_t>> FindWritable(const Key& key, uint64_t offset,
                                                          size_t size) = 0;
};

// kInvalidArgument unless [offset, offset + size) is within `limit` bytes, which `whose` names.
Status CheckRange(uint64_t offset, uint64_t size, uint64_t limit, const char* whose);

// The one-sided operations under way, so that the last of them can run what waits for their end.
// An operation enters before it looks whether the connection is open, and whoever closes marks that
// before it asks WhenIdle: so either the operation sees the mark, or it is waited for.
class Operations {
 public:
  void Enter() { under_way_.fetch_add(1, std::memory_order_seq_cst); }
  void Leave();
  // Runs `idle` once no operation is under way; at once where there is none.
  void WhenIdle(std::function<void()> idle);

 private:
  void RunWaiting();

  std::atomic<uint64_t> under_way_{0};
  std::atomic<bool> has_waiting_{false};
  std::mutex mu_;
  std::vector<std::function<void()>> waiting_;  // guarded by mu_
};

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_REMOTE_MEMORY_H_
