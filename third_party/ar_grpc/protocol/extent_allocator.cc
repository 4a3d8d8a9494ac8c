// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/extent_allocator.h"

#include <algorithm>
#include <iterator>

namespace ar_grpc::protocol {
namespace {

// Blocks up to this are kept for the next of their size: to look for the best place costs about as
// much as an operation on few bytes does, and nothing beside one on many.
constexpr uint64_t kLargestKept = 1 << 20;
// All that is kept is coalesced when it is more than this, so that it cannot scatter the rest.
constexpr uint64_t kMostKept = 32 << 20;

// Sizes that nobody asked for lately may leave empty lists behind; beyond this many they go.
constexpr size_t kMostEmptyLists = 1024;

uint64_t Down(uint64_t value, uint64_t multiple) { return value & ~(multiple - 1); }
uint64_t Up(uint64_t value, uint64_t multiple) { return Down(value + multiple - 1, multiple); }

// The whole pages in a range.
ExtentAllocator::Range Pages(const ExtentAllocator::Range& range, uint64_t page_size) {
  const uint64_t begin = Up(range.offset, page_size);
  const uint64_t end = Down(range.end(), page_size);
  return {begin, end > begin ? end - begin : 0};
}

}  // namespace

void ExtentAllocator::Extents::Insert(const Range& range) {
  by_offset_.emplace(range.offset, range.length);
  by_length_.emplace(range.length, range.offset);
  page_bytes_ += Pages(range, page_size_).length;
}

void ExtentAllocator::Extents::Erase(ByOffset::iterator extent) {
  page_bytes_ -= Pages({extent->first, extent->second}, page_size_).length;
  by_length_.erase({extent->second, extent->first});
  by_offset_.erase(extent);
}

void ExtentAllocator::Extents::Add(Range range) {
  auto next = by_offset_.lower_bound(range.offset);
  if (next != by_offset_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == range.offset) {
      range = {previous->first, previous->second + range.length};
      Erase(previous);
    }
  }
  if (next != by_offset_.end() && next->first == range.end()) {
    range.length += next->second;
    Erase(next);
  }
  Insert(range);
}

void ExtentAllocator::Extents::Remove(const Range& range) {
  auto extent = by_offset_.upper_bound(range.offset);
  if (extent != by_offset_.begin()) --extent;
  while (extent != by_offset_.end() && extent->first < range.end()) {
    const auto next = std::next(extent);
    const Range found{extent->first, extent->second};
    if (found.end() > range.offset) {
      Erase(extent);
      if (found.offset < range.offset) Insert({found.offset, range.offset - found.offset});
      if (found.end() > range.end()) Insert({range.end(), found.end() - range.end()});
    }
    extent = next;
  }
}

std::optional<ExtentAllocator::Range> ExtentAllocator::Extents::BestFit(uint64_t length,
                                                                        uint64_t alignment) const {
  // With an alignment of a granule the first one fits.
  for (auto it = by_length_.lower_bound({length, 0}); it != by_length_.end(); ++it) {
    const Range extent{it->second, it->first};
    const uint64_t start = Up(extent.offset, alignment);
    if (start <= extent.end() && extent.end() - start >= length) return Range{start, length};
  }
  return std::nullopt;
}

ExtentAllocator::Range ExtentAllocator::Extents::Around(uint64_t offset) const {
  const auto extent = std::prev(by_offset_.upper_bound(offset));
  return {extent->first, extent->second};
}

std::vector<ExtentAllocator::Range> ExtentAllocator::Extents::LargestPages(uint64_t limit) const {
  std::vector<Range> ranges;
  for (auto it = by_length_.rbegin(); it != by_length_.rend() && limit >= page_size_; ++it) {
    if (it->first < page_size_) break;
    const Range pages = Pages({it->second, it->first}, page_size_);
    const uint64_t length = std::min(pages.length, Down(limit, page_size_));
    if (length == 0) continue;
    ranges.push_back({pages.end() - length, length});
    limit -= length;
  }
  return ranges;
}

ExtentAllocator::ExtentAllocator(const Options& options)
    : options_(options),
      free_(options.page_size),
      warm_(options.page_size),
      interval_start_(Clock::now()) {
  const uint64_t size = Down(options.size, options.page_size);
  if (size > 0) free_.Add({0, size});
}

std::optional<uint64_t> ExtentAllocator::Allocate(uint64_t bytes, uint64_t alignment) {
  if (bytes > options_.size || alignment > options_.size) return std::nullopt;
  const uint64_t length = Up(std::max(bytes, uint64_t{1}), kGranule);
  alignment = std::max(alignment, kGranule);
  std::lock_guard<std::mutex> lock(mu_);
  if (length > options_.most_in_use || counters_.in_use > options_.most_in_use - length) {
    return std::nullopt;
  }
  std::optional<uint64_t> offset = TakeKept(length, alignment);
  if (!offset) offset = TakeFree(warm_, length, alignment);
  if (!offset && kept_bytes_ > 0) {
    // Before cold memory: what is kept may fit together.
    CoalesceKept();
    offset = TakeFree(warm_, length, alignment);
  }
  if (!offset) offset = TakeFree(free_, length, alignment);
  if (!offset) return std::nullopt;

  idle_ = std::min(idle_, WarmBytes());
  counters_.in_use += length;
  counters_.peak_in_use = std::max(counters_.peak_in_use, counters_.in_use);
  counters_.largest = std::max(counters_.largest, length);
  ++counters_.allocations;
  return offset;
}

std::optional<uint64_t> ExtentAllocator::TakeKept(uint64_t length, uint64_t alignment) {
  const auto found = kept_.find(length);
  if (found == kept_.end() || found->second.empty()) return std::nullopt;
  // The one freed last: it is the likeliest to be in a cache.
  Blocks::value_type* const block = found->second.back();
  const uint64_t offset = block->first;
  if (Down(offset, alignment) != offset) return std::nullopt;
  found->second.pop_back();
  kept_bytes_ -= length;
  kept_page_bytes_ -= Pages({offset, length}, options_.page_size).length;
  block->second.kept = false;
  return offset;
}

std::optional<uint64_t> ExtentAllocator::TakeFree(const Extents& from, uint64_t length,
                                                  uint64_t alignment) {
  const std::optional<Range> range = from.BestFit(length, alignment);
  if (!range) return std::nullopt;
  free_.Remove(*range);
  warm_.Remove(*range);
  blocks_.emplace(range->offset, Block{length, false});
  return range->offset;
}

bool ExtentAllocator::Free(uint64_t offset) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = blocks_.find(offset);
  if (found == blocks_.end() || found->second.kept) return false;
  const uint64_t length = found->second.length;
  counters_.in_use -= length;
  if (length > kLargestKept) {
    blocks_.erase(found);
    AddWarm({offset, length});
    return true;
  }
  found->second.kept = true;
  kept_[length].push_back(&*found);
  kept_bytes_ += length;
  kept_page_bytes_ += Pages({offset, length}, options_.page_size).length;
  if (kept_bytes_ > kMostKept) CoalesceKept();
  return true;
}

void ExtentAllocator::AddWarm(const Range& range) {
  free_.Add(range);
  // The pages at its edges hold memory, too, and so do the parts of them that are free.
  const Range run = free_.Around(range.offset);
  const uint64_t begin = std::max(run.offset, Down(range.offset, options_.page_size));
  const uint64_t end = std::min(run.end(), Up(range.end(), options_.page_size));
  warm_.Remove({begin, end - begin});
  warm_.Add({begin, end - begin});
}

void ExtentAllocator::CoalesceKept() {
  for (auto& [length, blocks] : kept_) {
    for (const Blocks::value_type* block : blocks) {
      const uint64_t offset = block->first;
      blocks_.erase(offset);
      AddWarm({offset, length});
    }
    blocks.clear();
  }
  if (kept_.size() > kMostEmptyLists) kept_.clear();
  kept_page_bytes_ = 0;
  kept_bytes_ = 0;
}

std::optional<uint64_t> ExtentAllocator::SizeOf(uint64_t offset) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = blocks_.find(offset);
  if (found == blocks_.end() || found->second.kept) return std::nullopt;
  return found->second.length;
}

std::vector<ExtentAllocator::Range> ExtentAllocator::Trim(Clock::time_point now, uint64_t limit) {
  std::lock_guard<std::mutex> lock(mu_);
  if (now - interval_start_ < options_.interval) return {};
  CoalesceKept();
  const std::vector<Range> ranges = warm_.LargestPages(std::min(idle_, limit));
  for (const Range& range : ranges) {
    warm_.Remove(range);
    free_.Remove(range);
    trimmed_.emplace(range.offset, range.length);
    idle_ -= range.length;
  }
  // Until then, further calls get the rest of what was idle; less if some of it is used meanwhile.
  if (ranges.empty() || idle_ < options_.page_size) {
    interval_start_ = now;
    idle_ = WarmBytes();
  }
  return ranges;
}

bool ExtentAllocator::Return(const Range& range, bool discarded) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = trimmed_.find(range.offset);
  if (found == trimmed_.end() || found->second != range.length) return false;
  trimmed_.erase(found);
  free_.Add(range);
  if (!discarded) warm_.Add(range);
  return true;
}

ExtentAllocator::Counters ExtentAllocator::counters() const {
  std::lock_guard<std::mutex> lock(mu_);
  Counters counters = counters_;
  counters.warm_free = WarmBytes();
  return counters;
}

void ExtentAllocator::ResetPeaks() {
  std::lock_guard<std::mutex> lock(mu_);
  counters_.peak_in_use = counters_.in_use;
  counters_.largest = 0;
  counters_.allocations = 0;
}

}  // namespace ar_grpc::protocol
