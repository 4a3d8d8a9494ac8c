// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/verbs/landing_pool.h"

#include <algorithm>
#include <utility>

namespace ar_grpc::verbs {
namespace {

using memory::ExtentAllocator;

constexpr uint64_t kMiB = uint64_t{1} << 20;

}  // namespace

std::shared_ptr<LandingPool::Block> LandingPool::TakeRegistered(uint64_t size) {
  std::lock_guard<std::mutex> lock(mu_);
  for (const std::shared_ptr<Piece>& piece : pieces_) {
    if (const auto offset = piece->extents.Allocate(size, ExtentAllocator::kGranule)) {
      return std::make_shared<Block>(shared_from_this(), piece, *offset, size);
    }
  }
  return nullptr;
}

StatusOr<std::shared_ptr<LandingPool::Block>> LandingPool::Take(uint64_t size) {
  if (std::shared_ptr<Block> block = TakeRegistered(size)) return block;
  // As much again as there is: so the number of segments stays small.
  const uint64_t grown = std::clamp(registered_bytes(), kFirstSegment, kLargestSegment);
  const uint64_t rounded = size > UINT64_MAX - kMiB ? size : (size + kMiB - 1) / kMiB * kMiB;
  const uint64_t bytes = std::max(grown, rounded);
  StatusOr<std::shared_ptr<memory::Segment>> segment = memory::Segment::Create(bytes);
  if (!segment.ok()) return segment.status();
  auto piece = std::make_shared<Piece>((*segment)->size());
  piece->segment = std::move(*segment);
  StatusOr<std::shared_ptr<fabric::Registration>> registration =
      context_->Register(piece->segment, 0, piece->segment->size(), fabric::Access::kWrite);
  if (!registration.ok()) return registration.status();
  piece->registration = std::move(*registration);
  const auto offset = piece->extents.Allocate(size, ExtentAllocator::kGranule);
  if (!offset.has_value()) {
    return Status(StatusCode::kInternal, "a new segment has no room for what it was made for");
  }
  std::lock_guard<std::mutex> lock(mu_);
  pieces_.push_back(piece);
  return std::make_shared<Block>(shared_from_this(), piece, *offset, size);
}

uint64_t LandingPool::registered_bytes() const {
  std::lock_guard<std::mutex> lock(mu_);
  uint64_t bytes = 0;
  for (const std::shared_ptr<Piece>& piece : pieces_) bytes += piece->segment->size();
  return bytes;
}

void LandingPool::GiveBack(const std::shared_ptr<Piece>& piece, uint64_t offset) {
  std::vector<std::shared_ptr<Piece>> gone;  // end without the lock
  std::lock_guard<std::mutex> lock(mu_);
  piece->extents.Free(offset);
  uint64_t free = piece->extents.counters().in_use == 0 ? piece->segment->size() : 0;
  for (auto each = pieces_.begin(); each != pieces_.end();) {
    const uint64_t size = (*each)->segment->size();
    if (*each == piece || (*each)->extents.counters().in_use > 0) {
      ++each;
    } else if (free + size <= kMostFree) {
      free += size;
      ++each;
    } else {
      gone.push_back(std::move(*each));
      each = pieces_.erase(each);
    }
  }
}

}  // namespace ar_grpc::verbs
