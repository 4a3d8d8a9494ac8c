// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/cpu_arena.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tensorflow/tsl/platform/logging.h"
#include "third_party/ar_grpc/base/limits.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/tensorflow/arena_allocator.h"

namespace ar_grpc {
namespace {

using memory::ExtentAllocator;

constexpr char kSizeVariable[] = "AR_GRPC_ARENA_SIZE";
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kSmallestSegment = uint64_t{1} << 20;
// Half of what a process can address with 47 bits; libraries and heaps need the rest.
constexpr uint64_t kLargestSegment = uint64_t{1} << 46;

// The segment starts at a page; no system has smaller ones.
constexpr size_t kMostAlignment = 4096;

// As long as jemalloc lets pages decay: a step of training that lasts some seconds must find its
// memory warm again, as a page fault costs more than the copy of a page.
constexpr std::chrono::milliseconds kTrimInterval = std::chrono::seconds(10);
// Idle memory is returned to the system by a thread that others wait for: about a millisecond of it
// at a time, and then a pause.
constexpr uint64_t kDiscardedAtOnce = uint64_t{16} << 20;
constexpr std::chrono::milliseconds kTrimPause{5};

// "512M" is 2^29; nullopt for what is no such size.
std::optional<uint64_t> ParseSize(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  const std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
  int shift = 0;
  if (suffix == "K" || suffix == "k") shift = 10;
  if (suffix == "M" || suffix == "m") shift = 20;
  if (suffix == "G" || suffix == "g") shift = 30;
  if ((shift == 0 && !suffix.empty()) || value > kLargestSegment >> shift) return std::nullopt;
  value <<= shift;
  return value < kSmallestSegment ? std::nullopt : std::optional<uint64_t>(value);
}

uint64_t SegmentSize() {
  // Twice the memory that this process may use: tensors of mixed sizes leave holes between them.
  const uint64_t usual = std::min((2 * UsableMemory() + kGiB - 1) / kGiB * kGiB, kLargestSegment);
  const char* const value = std::getenv(kSizeVariable);
  if (value == nullptr || *value == '\0') return usual;
  if (const std::optional<uint64_t> size = ParseSize(value)) return *size;
  LOG(ERROR) << kSizeVariable << "=" << value
             << " is no size from 1M to 65536G, in bytes or with the suffix K, M or G; the tensor "
                "arena takes its usual "
             << usual / kGiB << "G";
  return usual;
}

StatusOr<std::shared_ptr<memory::Segment>> NewSegment() {
  if (Status guaranteed = memory::SparsePagesGuaranteed(); !guaranteed.ok()) return guaranteed;
  return memory::Segment::Create(SegmentSize());
}

}  // namespace

std::atomic<CpuArena*> CpuArena::activated_{nullptr};

CpuArena* CpuArena::Get() {
  CpuArena* const arena = GetEvenInChild();
  return arena == nullptr || arena->forked_.load(std::memory_order_relaxed) ? nullptr : arena;
}

Status CpuArena::Activate() {
  // Never destroyed: a server may be made while the process ends.
  static std::mutex& mu = *new std::mutex;
  static const Status* outcome = nullptr;
  std::lock_guard<std::mutex> lock(mu);
  if (outcome != nullptr) return *outcome;
  const Status& possible = ArenaAllocatorInstalled();
  if (!possible.ok()) {
    outcome = &possible;
    return *outcome;
  }
  auto segment = NewSegment();
  outcome = new Status(segment.status());
  if (!segment.ok()) {
    const std::string less = outcome->code() == StatusCode::kResourceExhausted
                                 ? std::string(kSizeVariable) + " asks for less. "
                                 : "";
    LOG(WARNING) << "No tensor arena: " << outcome->message() << ". " << kWithoutArena << " "
                 << less << kArenaSwitch << "=0 asks for none.";
    return *outcome;
  }
  CpuArena* const arena = new CpuArena(std::move(*segment), UsableMemory());
  arena->FollowForks();
  activated_.store(arena, std::memory_order_release);
  return *outcome;
}

CpuArena::CpuArena(std::shared_ptr<memory::Segment> segment, uint64_t usable_memory)
    : segment_(std::move(segment)),
      exports_(std::make_shared<protocol::Exports>()),
      data_(segment_->data()),
      size_(segment_->size()),
      extents_([&] {
        ExtentAllocator::Options options;
        options.size = size_;
        options.interval = kTrimInterval;
        options.page_size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
        // More cannot be had. TensorFlow's own allocator then says so, where the system would kill
        // a process that touched too much of a sparse segment.
        options.most_in_use = usable_memory;
        // What is warm is not there for others. A process that finds half of the memory enough
        // loses nothing; where one needs more, cold memory takes the place of warm memory.
        options.most_held = usable_memory / 2;
        return options;
      }()) {
  exports_->AddSegment(segment_, &extents_);
}

bool CpuArena::Owns(const void* data, size_t size) const {
  return Contains(data) && size <= size_ - OffsetOf(data);
}

std::shared_ptr<uint8_t> CpuArena::AllocateShared(uint64_t size) {
  CpuArena* const arena = Get();
  if (arena == nullptr) return nullptr;
  auto* const data = static_cast<uint8_t*>(arena->Allocate(ExtentAllocator::kGranule, size));
  if (data == nullptr) return nullptr;
  return std::shared_ptr<uint8_t>(data, [arena](uint8_t* unused) { arena->Free(unused); });
}

CpuArena::Counters CpuArena::counters() const {
  const ExtentAllocator::Counters known = extents_.counters();
  Counters counters;
  counters.size = size_;
  counters.in_use = known.in_use;
  counters.warm_free = known.warm_free;
  counters.peak_in_use = known.peak_in_use;
  counters.allocations = known.allocations;
  return counters;
}

void* CpuArena::Allocate(size_t alignment, size_t bytes) {
  if (alignment > kMostAlignment) return nullptr;
  if (forked_.load(std::memory_order_relaxed)) return nullptr;
  bool cold = false;
  const std::optional<uint64_t> offset = extents_.Allocate(bytes, alignment, &cold);
  if (!offset) return nullptr;
  if (cold) {
    GiveBackExcess(bytes);
    exports_->Carved(data_ + *offset, bytes);
  }
  return data_ + *offset;
}

void CpuArena::Free(void* data) {
  if (forked_.load(std::memory_order_relaxed)) return;
  if (!extents_.Free(OffsetOf(data))) {
    LOG(ERROR) << "Freed memory that is not allocated, at " << data;
    return;
  }
  StartTrimming();
}

uint64_t CpuArena::SizeOf(const void* data) const {
  return extents_.SizeOf(OffsetOf(data)).value_or(0);
}

void CpuArena::GiveBackExcess(uint64_t cold) {
  // What is registered stays so for some time after its use, and then Trim is early enough.
  if (exports_->pins()) return;
  while (cold > 0) {
    const auto ranges = extents_.TakeExcess(std::min(cold, kDiscardedAtOnce));
    if (ranges.empty()) return;
    bool all_discarded = true;
    for (const ExtentAllocator::Range& range : ranges) {
      const StatusOr<bool> discarded = exports_->Discard(segment_, range);
      const bool done = discarded.ok() && *discarded;
      extents_.Return(range, done);
      all_discarded = all_discarded && done;
      cold -= std::min(cold, range.length);
    }
    // Trim tries again, and says why.
    if (!all_discarded) return;
  }
}

void CpuArena::StartTrimming() {
  // Mostly it trims already, and this is one load. Trim looks for free memory again after it has
  // said that it stops, so what was freed just now is not forgotten.
  if (trims_.load(std::memory_order_relaxed) || trims_.exchange(true)) return;
  TrimAfter(kTrimInterval);
}

void CpuArena::TrimAfter(std::chrono::milliseconds delay) {
  const uint64_t id = Reactor::Get().RunAfter(static_cast<int>(delay.count()), [this] { Trim(); });
  // No thread to trim on: whoever frees next tries again.
  if (id == 0) trims_.store(false);
}

void CpuArena::Trim() {
  if (!exports_->pins()) return TrimSome();
  // What was registered is deregistered first, which takes longer than the reactor may be kept.
  protocol::PinnedRanges::Queue().Run([this] { TrimSome(); });
}

StatusOr<bool> CpuArena::DiscardOrKeep(const std::vector<ExtentAllocator::Range>& ranges) {
  bool some_discarded = false;
  Status failed;
  for (const ExtentAllocator::Range& range : ranges) {
    const StatusOr<bool> discarded = exports_->Discard(segment_, range);
    if (discarded.ok() && !*discarded) {
      kept_.push_back(range);
      continue;
    }
    some_discarded = true;
    extents_.Return(range, discarded.ok());
    if (!discarded.ok()) failed = discarded.status();
  }
  if (!failed.ok()) return failed;
  return some_discarded;
}

void CpuArena::TrimSome() {
  if (forked_.load(std::memory_order_relaxed)) return;
  std::vector<ExtentAllocator::Range> ranges;
  StatusOr<bool> discarded = false;
  // What is kept takes no time: it is out of the allocator's hands as shortly as can be.
  do {
    ranges = extents_.Trim(ExtentAllocator::Clock::now(), kDiscardedAtOnce);
    discarded = DiscardOrKeep(ranges);
  } while (!ranges.empty() && discarded.ok() && !*discarded);
  if (ranges.empty() || !discarded.ok()) {
    for (const ExtentAllocator::Range& range : kept_) extents_.Return(range, false);
    kept_.clear();
  }
  if (!discarded.ok()) {
    // trims_ stays set: it would only fail again.
    LOG(WARNING) << "Tensors' memory is kept when it is idle: " << discarded.status().message();
  } else if (!ranges.empty()) {
    TrimAfter(kTrimPause);
  } else if (extents_.counters().warm_free > 0) {
    TrimAfter(kTrimInterval);
  } else {
    // An idle process has no timer.
    trims_.store(false);
    if (extents_.counters().warm_free > 0) StartTrimming();
  }
}

void CpuArena::FollowForks() {
  static CpuArena* const arena = this;
  pthread_atfork([] { arena->extents_.LockForFork(); }, [] { arena->extents_.UnlockAfterFork(); },
                 [] {
                   arena->forked_.store(true, std::memory_order_relaxed);
                   arena->segment_->MakePrivateAfterFork();
                   arena->extents_.UnlockAfterFork();
                 });
}

}  // namespace ar_grpc
