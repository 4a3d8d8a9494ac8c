// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_LOOPBACK_LINK_MEMORY_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_LOOPBACK_LINK_MEMORY_H_

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/remote_memory.h"

// Memory that the ends of a connection inside of one process export to each other.
namespace ar_grpc::fabric::loopback {

// What tells contexts apart; one that is gone has no successor of the same number.
using ContextId = uint64_t;

class LoopbackRegistration final : public Registration {
 public:
  LoopbackRegistration(ContextId context, std::shared_ptr<memory::Segment> segment, uint64_t offset,
                       uint64_t size, Access access);

  const std::shared_ptr<memory::Segment>& segment() const override { return segment_; }
  uint64_t offset() const override { return offset_; }
  uint64_t size() const override { return size_; }
  ContextId context() const { return context_; }
  Access access() const { return access_; }
  // What its key says.
  uint64_t id() const { return id_; }

 private:
  const ContextId context_;
  const std::shared_ptr<memory::Segment> segment_;
  const uint64_t offset_;
  const uint64_t size_;
  const Access access_;
  const uint64_t id_;
};

// What both ends of a connection have exported, by end. Does not keep a registration.
struct Link {
  std::mutex mu;
  std::array<std::map<uint64_t, std::weak_ptr<LoopbackRegistration>>, 2> exported;
};

class LinkMemory final : public RemoteMemory {
 public:
  // The end `self` (0 or 1) of `link`, which is of `context`.
  LinkMemory(std::shared_ptr<Link> link, int self, ContextId context);

  StatusOr<Key> Export(const std::shared_ptr<Registration>& registration) override;
  StatusOr<Lease> Find(const Key& key, uint64_t offset, size_t size) override;
  StatusOr<std::shared_ptr<uint8_t>> FindWritable(const Key& key, uint64_t offset,
                                                  size_t size) override;

 private:
  StatusOr<std::shared_ptr<LoopbackRegistration>> Named(const Key& key);

  const std::shared_ptr<Link> link_;
  const int self_;
  const ContextId context_;
};

}  // namespace ar_grpc::fabric::loopback

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_LOOPBACK_LINK_MEMORY_H_
