// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/memory/extent_allocator.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace ar_grpc::memory {
namespace {

// Freed blocks up to this are cached for the next of their size: to look for the best place costs
// about as much as an operation on few bytes does, and nothing beside one on many.
constexpr uint64_t kLargestCached = 1 << 20;
// Enough for the tensors of a training step that live at once; few enough to look through.
constexpr size_t kMostCached = 64;

uint64_t RoundDown(uint64_t value, uint64_t multiple) { return value & ~(multiple - 1); }
uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return RoundDown(value + multiple - 1, multiple);
}

// The whole pages in a range.
ExtentAllocator::Range Pages(const ExtentAllocator::Range& range, uint64_t page_size) {
  const uint64_t begin = RoundUp(range.offset, page_size);
  const uint64_t end = RoundDown(range.end(), page_size);
  return {begin, end > begin ? end - begin : 0};
}

}  // namespace

void ExtentAllocator::Extents::Insert(const Range& range) {
  by_offset_.emplace(range.offset, range.length);
  by_length_.emplace(range.length, range.offset);
  page_bytes_ += Pages(range, page_size_).length;
}

ExtentAllocator::ByOffset::iterator ExtentAllocator::Extents::Erase(ByOffset::iterator extent) {
  page_bytes_ -= Pages({extent->first, extent->second}, page_size_).length;
  by_length_.erase({extent->second, extent->first});
  return by_offset_.erase(extent);
}

void ExtentAllocator::Extents::Change(ByOffset::iterator extent, const Range& range) {
  page_bytes_ -= Pages({extent->first, extent->second}, page_size_).length;
  page_bytes_ += Pages(range, page_size_).length;
  auto length = by_length_.extract({extent->second, extent->first});
  length.value() = {range.length, range.offset};
  by_length_.insert(std::move(length));
  if (extent->first == range.offset) {
    extent->second = range.length;
    return;
  }
  const auto next = std::next(extent);
  auto offset = by_offset_.extract(extent);
  offset.key() = range.offset;
  offset.mapped() = range.length;
  by_offset_.insert(next, std::move(offset));
}

ExtentAllocator::Range ExtentAllocator::Extents::Add(const Range& range) {
  // The first that it overlaps or touches.
  auto first = by_offset_.upper_bound(range.offset);
  if (first != by_offset_.begin()) {
    const auto previous = std::prev(first);
    if (previous->first + previous->second >= range.offset) first = previous;
  }
  if (first == by_offset_.end() || first->first > range.end()) {
    Insert(range);
    return range;
  }
  uint64_t end = std::max(range.end(), first->first + first->second);
  auto next = std::next(first);
  while (next != by_offset_.end() && next->first <= end) {
    end = std::max(end, next->first + next->second);
    next = Erase(next);
  }
  const uint64_t begin = std::min(range.offset, first->first);
  const Range whole{begin, end - begin};
  Change(first, whole);
  return whole;
}

void ExtentAllocator::Extents::Remove(const Range& range) {
  auto extent = by_offset_.upper_bound(range.offset);
  if (extent != by_offset_.begin()) --extent;
  while (extent != by_offset_.end() && extent->first < range.end()) {
    const auto next = std::next(extent);
    const Range found{extent->first, extent->second};
    const Range before{found.offset, range.offset > found.offset ? range.offset - found.offset : 0};
    const Range after{range.end(), found.end() > range.end() ? found.end() - range.end() : 0};
    if (found.end() <= range.offset) {
      // It ends before.
    } else if (before.length > 0) {
      Change(extent, before);
      if (after.length > 0) Insert(after);
    } else if (after.length > 0) {
      Change(extent, after);
    } else {
      Erase(extent);
    }
    extent = next;
  }
}

std::vector<ExtentAllocator::Range> ExtentAllocator::Within(const ByOffset& ranges,
                                                            const Range& range) {
  std::vector<Range> parts;
  auto extent = ranges.upper_bound(range.offset);
  if (extent != ranges.begin()) --extent;
  for (; extent != ranges.end() && extent->first < range.end(); ++extent) {
    const uint64_t begin = std::max(extent->first, range.offset);
    const uint64_t end = std::min(extent->first + extent->second, range.end());
    if (begin < end) parts.push_back({begin, end - begin});
  }
  return parts;
}

std::optional<ExtentAllocator::Range> ExtentAllocator::Extents::BestFit(uint64_t length,
                                                                        uint64_t alignment) const {
  // With an alignment of a granule the first one fits.
  for (auto it = by_length_.lower_bound({length, 0}); it != by_length_.end(); ++it) {
    const Range extent{it->second, it->first};
    const uint64_t start = RoundUp(extent.offset, alignment);
    if (start <= extent.end() && extent.end() - start >= length) return Range{start, length};
  }
  return std::nullopt;
}

std::vector<ExtentAllocator::Range> ExtentAllocator::Extents::LargestPages(uint64_t limit) const {
  std::vector<Range> ranges;
  for (auto it = by_length_.rbegin(); it != by_length_.rend() && limit >= page_size_; ++it) {
    if (it->first < page_size_) break;
    const Range pages = Pages({it->second, it->first}, page_size_);
    const uint64_t length = std::min(pages.length, RoundDown(limit, page_size_));
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
  const uint64_t size = RoundDown(options.size, options.page_size);
  if (size > 0) free_.Add({0, size});
  cached_.reserve(kMostCached);
}

std::optional<uint64_t> ExtentAllocator::Allocate(uint64_t bytes, uint64_t alignment, bool* cold) {
  if (bytes > options_.size || alignment > options_.size) return std::nullopt;
  const uint64_t length = RoundUp(std::max(bytes, uint64_t{1}), kGranule);
  alignment = std::max(alignment, kGranule);
  std::lock_guard<std::mutex> lock(mu_);
  if (length > options_.most_in_use || counters_.in_use > options_.most_in_use - length) {
    return std::nullopt;
  }
  std::optional<uint64_t> offset = TakeCached(length, alignment);
  if (!offset) offset = TakeFree(warm_, length, alignment);
  if (!offset && !cached_.empty()) {
    // Before cold memory: cached blocks may fit together.
    CoalesceCached(cached_.size());
    offset = TakeFree(warm_, length, alignment);
  }
  if (!offset) {
    offset = TakeFree(free_, length, alignment);
    if (!offset) return std::nullopt;
    if (cold != nullptr) *cold = true;
  }

  idle_ = std::min(idle_, WarmBytes());
  counters_.in_use += length;
  counters_.peak_in_use = std::max(counters_.peak_in_use, counters_.in_use);
  counters_.largest = std::max(counters_.largest, length);
  ++counters_.allocations;
  return offset;
}

std::optional<uint64_t> ExtentAllocator::TakeCached(uint64_t length, uint64_t alignment) {
  // From the one freed last: it is the likeliest to be in a cache.
  for (auto it = cached_.rbegin(); it != cached_.rend(); ++it) {
    if (it->length != length) continue;
    const uint64_t offset = it->block->first;
    if (RoundDown(offset, alignment) != offset) continue;
    it->block->second.cached = false;
    cached_page_bytes_ -= Pages({offset, length}, options_.page_size).length;
    cached_.erase(std::next(it).base());
    return offset;
  }
  return std::nullopt;
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
  if (found == blocks_.end() || found->second.cached) return false;
  const uint64_t length = found->second.length;
  counters_.in_use -= length;
  if (length > kLargestCached) {
    blocks_.erase(found);
    AddWarm({offset, length});
    return true;
  }
  if (cached_.size() == kMostCached) CoalesceCached(kMostCached / 2);
  found->second.cached = true;
  cached_.push_back({length, &*found});
  cached_page_bytes_ += Pages({offset, length}, options_.page_size).length;
  return true;
}

void ExtentAllocator::AddWarm(const Range& range) {
  const Range run = free_.Add(range);
  // The pages at its edges hold memory, too, and so do the parts of them that are free.
  const uint64_t begin = std::max(run.offset, RoundDown(range.offset, options_.page_size));
  const uint64_t end = std::min(run.end(), RoundUp(range.end(), options_.page_size));
  warm_.Add({begin, end - begin});
}

void ExtentAllocator::CoalesceCached(size_t count) {
  const auto end = cached_.begin() + static_cast<std::ptrdiff_t>(count);
  for (auto one = cached_.begin(); one != end; ++one) {
    const Range range{one->block->first, one->length};
    cached_page_bytes_ -= Pages(range, options_.page_size).length;
    blocks_.erase(range.offset);
    AddWarm(range);
  }
  cached_.erase(cached_.begin(), end);
}

std::optional<uint64_t> ExtentAllocator::SizeOf(uint64_t offset) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = blocks_.find(offset);
  if (found == blocks_.end() || found->second.cached) return std::nullopt;
  return found->second.length;
}

std::vector<ExtentAllocator::Range> ExtentAllocator::InUse() const {
  std::vector<Range> ranges;
  {
    std::lock_guard<std::mutex> lock(mu_);
    ranges.reserve(blocks_.size());
    for (const auto& [offset, block] : blocks_) {
      if (!block.cached) ranges.push_back({offset, block.length});
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& one, const Range& other) { return one.offset < other.offset; });
  return ranges;
}

uint64_t ExtentAllocator::InUse(const Range& range) const {
  std::lock_guard<std::mutex> lock(mu_);
  uint64_t bytes = range.length;
  for (const Range& part : free_.Within(range)) bytes -= part.length;
  for (const ByOffset* const taken : {&trimmed_, &excess_}) {
    for (const Range& part : Within(*taken, range)) bytes -= part.length;
  }
  return bytes;
}

void ExtentAllocator::Warm(const Range& pages) {
  std::lock_guard<std::mutex> lock(mu_);
  for (const Range& part : free_.Within(pages)) warm_.Add(part);
}

std::vector<ExtentAllocator::Range> ExtentAllocator::Trim(Clock::time_point now, uint64_t limit) {
  std::lock_guard<std::mutex> lock(mu_);
  if (now - interval_start_ < options_.interval) return {};
  CoalesceCached(cached_.size());
  const std::vector<Range> ranges = TakeWarm(std::min(idle_, limit), &trimmed_);
  for (const Range& range : ranges) idle_ -= range.length;
  // Until then, further calls get the rest of what was idle; less if some of it is used meanwhile.
  if (ranges.empty() || idle_ < options_.page_size) {
    interval_start_ = now;
    idle_ = WarmBytes();
  }
  return ranges;
}

std::vector<ExtentAllocator::Range> ExtentAllocator::TakeExcess(uint64_t limit) {
  std::lock_guard<std::mutex> lock(mu_);
  const uint64_t warm = warm_.page_bytes();
  const uint64_t room = options_.most_held - std::min(options_.most_held, counters_.in_use);
  if (warm <= room) return {};
  const std::vector<Range> ranges =
      TakeWarm(RoundUp(std::min(warm - room, limit), options_.page_size), &excess_);
  // Nobody knows which of it was idle.
  for (const Range& range : ranges) idle_ -= std::min(idle_, range.length);
  return ranges;
}

std::vector<ExtentAllocator::Range> ExtentAllocator::TakeWarm(uint64_t limit, ByOffset* taken) {
  std::vector<Range> ranges = warm_.LargestPages(limit);
  for (const Range& range : ranges) {
    warm_.Remove(range);
    free_.Remove(range);
    taken->emplace(range.offset, range.length);
  }
  return ranges;
}

bool ExtentAllocator::PutBack(const Range& range, ByOffset* taken) {
  const auto found = taken->find(range.offset);
  if (found == taken->end() || found->second != range.length) return false;
  taken->erase(found);
  return true;
}

bool ExtentAllocator::Return(const Range& range, bool discarded) {
  std::lock_guard<std::mutex> lock(mu_);
  const bool was_idle = PutBack(range, &trimmed_);
  if (!was_idle && !PutBack(range, &excess_)) return false;
  free_.Add(range);
  if (discarded) return true;
  warm_.Add(range);
  // It has been idle all the time.
  if (was_idle) idle_ += range.length;
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

}  // namespace ar_grpc::memory
