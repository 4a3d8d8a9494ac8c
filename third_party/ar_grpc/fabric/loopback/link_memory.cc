// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/loopback/link_memory.h"

#include <atomic>
#include <iterator>
#include <utility>

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::fabric::loopback {
namespace {

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

// `size` bytes at `offset` of the registration; it holds the segment alone.
StatusOr<std::shared_ptr<uint8_t>> RangeOf(const LoopbackRegistration& registration,
                                           uint64_t offset, size_t size) {
  if (Status status = CheckRange(offset, size, registration.size(), "the peer's registration");
      !status.ok()) {
    return status;
  }
  const std::shared_ptr<memory::Segment>& segment = registration.segment();
  return std::shared_ptr<uint8_t>(segment, segment->data() + registration.offset() + offset);
}

}  // namespace

LoopbackRegistration::LoopbackRegistration(ContextId context,
                                           std::shared_ptr<memory::Segment> segment,
                                           uint64_t offset, uint64_t size, Access access)
    : context_(context),
      segment_(std::move(segment)),
      offset_(offset),
      size_(size),
      access_(access),
      id_(NextId()) {}

LinkMemory::LinkMemory(std::shared_ptr<Link> link, int self, ContextId context)
    : link_(std::move(link)), self_(self), context_(context) {}

StatusOr<Key> LinkMemory::Export(const std::shared_ptr<Registration>& registration) {
  const auto ours = std::dynamic_pointer_cast<LoopbackRegistration>(registration);
  if (!ours || ours->context() != context_) {
    return Status(StatusCode::kInvalidArgument, "a registration of another context");
  }
  Writer key;
  key.Put(ours->id());
  std::lock_guard<std::mutex> lock(link_->mu);
  auto& exported = link_->exported[self_];
  for (auto it = exported.begin(); it != exported.end();) {
    it = it->second.expired() ? exported.erase(it) : std::next(it);
  }
  exported[ours->id()] = ours;
  return key.Take();
}

StatusOr<std::shared_ptr<LoopbackRegistration>> LinkMemory::Named(const Key& key) {
  Reader reader(key);
  uint64_t id = 0;
  if (reader.Get(&id) && reader.AtEnd()) {
    std::lock_guard<std::mutex> lock(link_->mu);
    const auto& exported = link_->exported[1 - self_];
    if (const auto found = exported.find(id); found != exported.end()) {
      if (auto registration = found->second.lock()) return registration;
    }
  }
  return Status(StatusCode::kInvalidArgument, "no key that the peer gave, or its memory is gone");
}

StatusOr<Lease> LinkMemory::Find(const Key& key, uint64_t offset, size_t size) {
  const auto registration = Named(key);
  if (!registration.ok()) return registration.status();
  StatusOr<std::shared_ptr<uint8_t>> data = RangeOf(**registration, offset, size);
  if (!data.ok()) return data.status();
  return Lease{std::move(*data), size};
}

StatusOr<std::shared_ptr<uint8_t>> LinkMemory::FindWritable(const Key& key, uint64_t offset,
                                                            size_t size) {
  const auto registration = Named(key);
  if (!registration.ok()) return registration.status();
  if ((*registration)->access() != Access::kWrite) {
    return Status(StatusCode::kInvalidArgument, "the peer gave this memory for reading");
  }
  return RangeOf(**registration, offset, size);
}

}  // namespace ar_grpc::fabric::loopback
