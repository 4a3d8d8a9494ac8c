// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_VERBS_LANDING_POOL_H_
#define THIRD_PARTY_AR_GRPC_VERBS_LANDING_POOL_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/memory/extent_allocator.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::verbs {

// The memory that one peer may write tensors to: segments that are registered for its writing and
// hold nothing else, so that whatever a peer writes with the keys that it was told, it only spoils
// what it sends itself. Tensors are copied out of it: a peer could change one later that was used
// in place. Thread-safe; blocks may outlive it.
class LandingPool : public std::enable_shared_from_this<LandingPool> {
 public:
  // Segments grow with what was asked for, from the one size to the other, and beyond only for a
  // tensor that is larger. Pinned pages are dear: free segments beyond kMostFree bytes go back, but
  // not the one that was used last, which the next step wants again.
  static constexpr uint64_t kFirstSegment = uint64_t{4} << 20;
  static constexpr uint64_t kLargestSegment = uint64_t{64} << 20;
  static constexpr uint64_t kMostFree = uint64_t{128} << 20;

  class Block;

  explicit LandingPool(fabric::Context* context) : context_(context) {}

  // `size` bytes, at least 1. Null where no registered segment has room.
  std::shared_ptr<Block> TakeRegistered(uint64_t size);
  // The same, with a new segment where that is needed: it waits for its registration, milliseconds.
  // kResourceExhausted names the limit that is too small.
  StatusOr<std::shared_ptr<Block>> Take(uint64_t size);

  // Registered bytes.
  uint64_t registered_bytes() const;

 private:
  struct Piece {
    explicit Piece(uint64_t size) : extents(Options(size)) {}
    static memory::ExtentAllocator::Options Options(uint64_t size) {
      memory::ExtentAllocator::Options options;
      options.size = size;
      return options;
    }
    std::shared_ptr<memory::Segment> segment;
    std::shared_ptr<fabric::Registration> registration;
    memory::ExtentAllocator extents;
  };

  void GiveBack(const std::shared_ptr<Piece>& piece, uint64_t offset);

  fabric::Context* const context_;
  mutable std::mutex mu_;
  std::vector<std::shared_ptr<Piece>> pieces_;  // guarded by mu_
};

// Some of it, taken until this is destroyed.
class LandingPool::Block {
 public:
  Block(std::shared_ptr<LandingPool> landing, std::shared_ptr<Piece> piece, uint64_t offset,
        uint64_t size)
      : landing_(std::move(landing)), piece_(std::move(piece)), offset_(offset), size_(size) {}
  ~Block() { landing_->GiveBack(piece_, offset_); }
  Block(const Block&) = delete;

  const uint8_t* data() const { return piece_->segment->data() + offset_; }
  uint64_t offset() const { return offset_; }  // in the registration
  uint64_t size() const { return size_; }
  const std::shared_ptr<fabric::Registration>& registration() const { return piece_->registration; }

 private:
  const std::shared_ptr<LandingPool> landing_;
  const std::shared_ptr<Piece> piece_;
  const uint64_t offset_;
  const uint64_t size_;
};

}  // namespace ar_grpc::verbs

#endif  // THIRD_PARTY_AR_GRPC_VERBS_LANDING_POOL_H_
