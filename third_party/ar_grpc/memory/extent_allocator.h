// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MEMORY_EXTENT_ALLOCATOR_H_
#define THIRD_PARTY_AR_GRPC_MEMORY_EXTENT_ALLOCATOR_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

namespace ar_grpc::memory {

// Hands out offsets of a sparse region: memory of which a page takes room only once it is touched.
// It never looks into the region; all it knows lies outside, so no peer and no stray write to the
// region can mislead it.
//
// A page fault costs more than the copy of a page, so free memory is of two kinds. *Warm* pages
// were in use and still hold memory, *cold* ones were never touched, or were discarded. An
// allocation takes, in this order: an extent of exactly its size that was freed lately (most of
// what a training step needs, as each step asks for the same sizes); the smallest free warm extent
// it fits in; the smallest free extent at all. Among equals the lowest address wins, so that the
// span in use stays short.
//
// What stays warm and free for a whole interval is idle, and Trim gives it up.
//
// All functions are thread-safe.
class ExtentAllocator {
 public:
  using Clock = std::chrono::steady_clock;

  // Every offset and length is a multiple of it. No two tensors share a cache line or a pair of
  // lines that is prefetched together.
  static constexpr uint64_t kGranule = 256;

  struct Range {
    uint64_t offset = 0;
    uint64_t length = 0;
    uint64_t end() const { return offset + length; }
  };

  struct Options {
    // Of the region, in bytes; what is beyond the last whole page is left alone.
    uint64_t size = 0;
    // A power of two, and a multiple of kGranule.
    uint64_t page_size = 4096;
    // Allocations that would take more than this in all fail.
    uint64_t most_in_use = UINT64_MAX;
    // Of what is in use and what is warm together: more of it is TakeExcess's.
    uint64_t most_held = UINT64_MAX;
    // How long memory must lie unused before Trim takes it.
    Clock::duration interval = std::chrono::seconds(1);
  };

  struct Counters {
    uint64_t in_use = 0;
    uint64_t peak_in_use = 0;
    uint64_t largest = 0;  // ever allocated at once
    uint64_t allocations = 0;
    uint64_t warm_free = 0;  // bytes of whole free pages that still hold memory
  };

  explicit ExtentAllocator(const Options& options);
  ExtentAllocator(const ExtentAllocator&) = delete;
  ExtentAllocator& operator=(const ExtentAllocator&) = delete;

  // The offset of `bytes` free bytes, a multiple of `alignment` (a power of two; the granule at
  // least); nullopt when there is no such room. `*cold` becomes whether cold memory was needed.
  std::optional<uint64_t> Allocate(uint64_t bytes, uint64_t alignment, bool* cold = nullptr);
  // Takes back what Allocate gave. false, and nothing happens, for any other offset.
  bool Free(uint64_t offset);
  // The bytes allocated at `offset`: what was asked for, rounded up to the granule. nullopt where
  // no allocation starts.
  std::optional<uint64_t> SizeOf(uint64_t offset) const;
  // All that is allocated, by offset.
  std::vector<Range> InUse() const;
  // Bytes of `range` that are allocated, or cached for an allocation of their size.
  uint64_t InUse(const Range& range) const;
  // Whole pages hold memory now, whoever brought it in: what of them is free becomes warm.
  void Warm(const Range& pages);

  // Up to `limit` bytes in whole pages that were warm and free during the whole of the last
  // interval; the largest extents first, in them the highest addresses. Nothing before an interval
  // has passed since one was last found to have nothing (more) to give.
  //
  // The ranges are taken out: nobody is given memory in them, so the caller may discard them
  // without holding any lock, and must then hand each to Return.
  std::vector<Range> Trim(Clock::time_point now, uint64_t limit = UINT64_MAX);
  // The same of what is more than most_held, up to `limit` rounded up to whole pages, however
  // lately it was used. Not what is cached for the next of its size.
  std::vector<Range> TakeExcess(uint64_t limit);
  // Puts a range from Trim or TakeExcess back: as cold memory if it was discarded, else as the warm
  // memory that it was. false for any other range.
  bool Return(const Range& range, bool discarded);

  Counters counters() const;
  // Forgets the peaks: peak_in_use starts again from in_use, largest and allocations from 0.
  void ResetPeaks();

  // Around fork: no thread may hold the lock while the child's copy of it is made.
  void LockForFork() { mu_.lock(); }
  void UnlockAfterFork() { mu_.unlock(); }

 private:
  // Disjoint ranges.
  using ByOffset = std::map<uint64_t, uint64_t>;  // offset, length
  static std::vector<Range> Within(const ByOffset& ranges, const Range& range);

  // Disjoint ranges, by address and by length; neighbours coalesce.
  class Extents {
   public:
    explicit Extents(uint64_t page_size) : page_size_(page_size) {}
    // What of `range` is in it already stays. Returns the extent that it is part of now.
    Range Add(const Range& range);
    // Removes those parts of `range` that are in it.
    void Remove(const Range& range);
    // Those parts of `range` that are in it.
    std::vector<Range> Within(const Range& range) const {
      return ExtentAllocator::Within(by_offset_, range);
    }
    // The smallest extent in which `length` bytes so aligned fit; nullopt if there is none.
    std::optional<Range> BestFit(uint64_t length, uint64_t alignment) const;
    // Up to `limit` bytes of whole pages, the largest extents first, each from its end.
    std::vector<Range> LargestPages(uint64_t limit) const;
    // Bytes of the whole pages in the extents.
    uint64_t page_bytes() const { return page_bytes_; }

   private:
    void Insert(const Range& range);
    ByOffset::iterator Erase(ByOffset::iterator extent);
    // Gives an extent other bounds, between its neighbours, without malloc and free.
    void Change(ByOffset::iterator extent, const Range& range);

    const uint64_t page_size_;
    ByOffset by_offset_;
    std::set<std::pair<uint64_t, uint64_t>> by_length_;  // length, offset
    uint64_t page_bytes_ = 0;
  };

  // An allocation, or a small one that was freed and is cached for the next of its size.
  struct Block {
    uint64_t length = 0;
    bool cached = false;
  };
  using Blocks = std::unordered_map<uint64_t, Block>;  // by offset
  struct CachedBlock {
    uint64_t length = 0;
    Blocks::value_type* block = nullptr;
  };

  // All of these require mu_.
  std::optional<uint64_t> TakeCached(uint64_t length, uint64_t alignment);
  std::optional<uint64_t> TakeFree(const Extents& from, uint64_t length, uint64_t alignment);
  void AddWarm(const Range& range);
  void CoalesceCached(size_t count);
  uint64_t WarmBytes() const { return warm_.page_bytes() + cached_page_bytes_; }
  // Up to `limit` bytes, which are in `taken` until PutBack, false for others, takes them out.
  std::vector<Range> TakeWarm(uint64_t limit, ByOffset* taken);
  static bool PutBack(const Range& range, ByOffset* taken);

  const Options options_;

  mutable std::mutex mu_;
  Blocks blocks_;
  // The cached blocks, the oldest first. They are neither in free_ nor in warm_.
  std::vector<CachedBlock> cached_;
  uint64_t cached_page_bytes_ = 0;
  // All else that is free, and those parts of it that are warm. Where a page is partly in use its
  // free parts may be in either; a page that is free as a whole is warm, or cold, as a whole.
  Extents free_;
  Extents warm_;
  // What Trim and TakeExcess took.
  ByOffset trimmed_;
  ByOffset excess_;
  Counters counters_;
  // The fewest warm bytes there were since interval_start_.
  uint64_t idle_ = 0;
  Clock::time_point interval_start_;
};

}  // namespace ar_grpc::memory

#endif  // THIRD_PARTY_AR_GRPC_MEMORY_EXTENT_ALLOCATOR_H_
