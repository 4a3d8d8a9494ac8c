// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/cpu_arena.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tensorflow/tsl/framework/allocator.h"
#include "tensorflow/tsl/framework/allocator_registry.h"
#include "tensorflow/tsl/platform/logging.h"
#include "tensorflow/tsl/profiler/lib/scoped_memory_debug_annotation.h"
#include "tensorflow/tsl/profiler/lib/traceme.h"
#include "third_party/ar_grpc/base/limits.h"
#include "third_party/ar_grpc/base/reactor.h"

namespace ar_grpc {
namespace {

using memory::ExtentAllocator;
using tsl::AllocatorFactoryRegistry;

constexpr char kSwitch[] = "AR_GRPC_ARENA";
constexpr char kSizeVariable[] = "AR_GRPC_ARENA_SIZE";
constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kSmallestSegment = uint64_t{1} << 20;
// Half of what a process can address with 47 bits; libraries and heaps need the rest.
constexpr uint64_t kLargestSegment = uint64_t{1} << 46;

constexpr char kOtherwise[] = "Tensors travel through the stream, which copies them more often.";

// The segment starts at a page; no system has smaller ones.
constexpr size_t kMostAlignment = 4096;

// As long as jemalloc lets pages decay: a step of training that lasts some seconds must find its
// memory warm again, as a page fault costs more than the copy of a page.
constexpr std::chrono::milliseconds kTrimInterval = std::chrono::seconds(10);
// Idle memory is returned to the system by a thread that others wait for: about a millisecond of it
// at a time, and then a pause.
constexpr uint64_t kDiscardedAtOnce = uint64_t{16} << 20;
constexpr std::chrono::milliseconds kTrimPause{5};

// Set once; lives as long as the process, as tensors are freed until the very end.
std::atomic<CpuArena*> activated{nullptr};

// The registry aborts the process when a factory comes after the first allocation, does not tell
// whether there was one, and does not give the factory of the next lower priority. All of this is
// in its private members. Access is not checked in an explicit instantiation ([temp.spec]/6), and
// the names are checked against the header of the TensorFlow that is compiled for.
auto& Mutex(AllocatorFactoryRegistry& registry);
auto& FirstAllocationMade(AllocatorFactoryRegistry& registry);
auto& Factories(AllocatorFactoryRegistry& registry);

template <auto kMutex, auto kFirstAllocMade, auto kFactories>
struct Members {
  friend auto& Mutex(AllocatorFactoryRegistry& registry) { return registry.*kMutex; }
  friend auto& FirstAllocationMade(AllocatorFactoryRegistry& registry) {
    return registry.*kFirstAllocMade;
  }
  friend auto& Factories(AllocatorFactoryRegistry& registry) { return registry.*kFactories; }
};

template struct Members<&AllocatorFactoryRegistry::mu_,
                        &AllocatorFactoryRegistry::first_alloc_made_,
                        &AllocatorFactoryRegistry::factories_>;

}  // namespace

// In front of the allocator that TensorFlow would use, whose name and habits it keeps.
class ArenaAllocator final : public tsl::AllocatorWrapper {
 public:
  explicit ArenaAllocator(std::unique_ptr<tsl::Allocator> stock)
      : AllocatorWrapper(stock.get()), stock_(std::move(stock)) {}

  void* AllocateRaw(size_t alignment, size_t bytes) override {
    void* const data = FromArena(alignment, bytes);
    return data != nullptr ? data : stock_->AllocateRaw(alignment, bytes);
  }

  void* AllocateRaw(size_t alignment, size_t bytes,
                    const tsl::AllocationAttributes& attributes) override {
    void* const data = FromArena(alignment, bytes);
    return data != nullptr ? data : stock_->AllocateRaw(alignment, bytes, attributes);
  }

  void DeallocateRaw(void* data) override {
    CpuArena* const arena = ArenaOf(data);
    if (arena == nullptr) return stock_->DeallocateRaw(data);
    Trace("MemoryDeallocation", *arena, data, 0);
    arena->Free(data);
  }

  size_t RequestedSize(const void* data) const override {
    const CpuArena* const arena = ArenaOf(data);
    return arena != nullptr ? arena->SizeOf(data) : stock_->RequestedSize(data);
  }

  size_t AllocatedSize(const void* data) const override {
    const CpuArena* const arena = ArenaOf(data);
    return arena != nullptr ? arena->SizeOf(data) : stock_->AllocatedSize(data);
  }

  int64_t AllocationId(const void* data) const override {
    // 0: none is assigned.
    return ArenaOf(data) != nullptr ? 0 : stock_->AllocationId(data);
  }

  size_t AllocatedSizeSlow(const void* data) const override {
    const CpuArena* const arena = ArenaOf(data);
    return arena != nullptr ? arena->SizeOf(data) : stock_->AllocatedSizeSlow(data);
  }

  absl::optional<tsl::AllocatorStats> GetStats() override {
    absl::optional<tsl::AllocatorStats> stats = stock_->GetStats();
    const CpuArena* const arena = activated.load(std::memory_order_acquire);
    if (!stats || arena == nullptr) return stats;
    const ExtentAllocator::Counters counters = arena->extents_.counters();
    stats->num_allocs += counters.allocations;
    stats->bytes_in_use += counters.in_use;
    // Both peaks need not have been at the same time; this is what a process may need at most.
    stats->peak_bytes_in_use += counters.peak_in_use;
    stats->largest_alloc_size =
        std::max(stats->largest_alloc_size, static_cast<int64_t>(counters.largest));
    return stats;
  }

  bool ClearStats() override {
    if (!stock_->ClearStats()) return false;
    CpuArena* const arena = activated.load(std::memory_order_acquire);
    if (arena != nullptr) arena->extents_.ResetPeaks();
    return true;
  }

  void SetSafeFrontier(tsl::uint64 count) override { stock_->SetSafeFrontier(count); }

  void SetStreamAndPreallocateMemory(void* stream) override {
    stock_->SetStreamAndPreallocateMemory(stream);
  }

 private:
  void* FromArena(size_t alignment, size_t bytes) {
    if (bytes < CpuArena::kSmallest) return nullptr;
    CpuArena* const arena = activated.load(std::memory_order_acquire);
    if (arena == nullptr) return nullptr;
    void* const data = arena->Allocate(alignment, bytes);
    if (data != nullptr) Trace("MemoryAllocation", *arena, data, bytes);
    return data;
  }

  static CpuArena* ArenaOf(const void* data) {
    CpuArena* const arena = activated.load(std::memory_order_acquire);
    return arena != nullptr && arena->Contains(data) ? arena : nullptr;
  }

  // For TensorFlow's memory profile, as its own allocators do.
  void Trace(const char* event, const CpuArena& arena, const void* data, size_t requested) {
    tsl::profiler::TraceMe::InstantActivity(
        [&] {
          const auto& annotation = tsl::profiler::ScopedMemoryDebugAnnotation::CurrentAnnotation();
          const auto text = [](const char* known) { return known != nullptr ? known : "(null)"; };
          const ExtentAllocator::Counters counters = arena.extents_.counters();
          return tsl::profiler::TraceMeEncode(
              event, {{"allocator_name", Name()},
                      {"bytes_reserved", 0},
                      {"bytes_allocated", counters.in_use},
                      {"peak_bytes_in_use", counters.peak_in_use},
                      {"requested_bytes", requested},
                      {"allocation_bytes", arena.SizeOf(data)},
                      {"addr", reinterpret_cast<uintptr_t>(data)},
                      {"tf_op", text(annotation.pending_op_name)},
                      {"id", annotation.pending_step_id},
                      {"region_type", text(annotation.pending_region_type)},
                      {"data_type", annotation.pending_data_type},
                      {"shape", annotation.pending_shape_func()}});
        },
        /*level=*/tsl::profiler::TraceMeLevel::kInfo);
  }

  const std::unique_ptr<tsl::Allocator> stock_;
};

namespace {

// Wraps what TensorFlow would have chosen: its default allocator, or oneDNN's.
class ArenaFactory final : public tsl::AllocatorFactory {
 public:
  // The registry holds its lock around both, so its factories can be looked at.
  tsl::Allocator* CreateAllocator() override {
    return new ArenaAllocator(std::unique_ptr<tsl::Allocator>(Stock().CreateAllocator()));
  }

  tsl::SubAllocator* CreateSubAllocator(int numa_node) override {
    return Stock().CreateSubAllocator(numa_node);
  }

 private:
  tsl::AllocatorFactory& Stock() const {
    tsl::AllocatorFactory* best = nullptr;
    int priority = -1;
    for (const auto& entry : Factories(*AllocatorFactoryRegistry::singleton())) {
      if (entry.factory.get() == this || entry.priority <= priority) continue;
      best = entry.factory.get();
      priority = entry.priority;
    }
    CHECK(best != nullptr) << "TensorFlow has no CPU allocator of its own";
    return *best;
  }
};

// Before the first allocation, or never. Here the whole of the registry's own Register is in one
// critical section with that question.
bool RegisterFactory() {
  AllocatorFactoryRegistry& registry = *AllocatorFactoryRegistry::singleton();
  tsl::mutex_lock lock(Mutex(registry));
  if (FirstAllocationMade(registry)) return false;
  auto& entry = Factories(registry).emplace_back();
  entry.source_file = "third_party/ar_grpc/tensorflow/cpu_arena.cc";
  entry.source_line = __LINE__;
  entry.name = "ArGrpcCpuArena";
  entry.priority = 1000;  // TensorFlow's own are 50 to 200.
  entry.factory = std::make_unique<ArenaFactory>();
  return true;
}

// OK, or why tensors cannot come from the arena.
Status SetUp() {
  const char* const value = std::getenv(kSwitch);
  if (value != nullptr && std::strcmp(value, "0") == 0) {
    return Status(StatusCode::kFailedPrecondition, "AR_GRPC_ARENA=0 turns the tensor arena off");
  }
  if (value != nullptr && *value != '\0' && std::strcmp(value, "1") != 0) {
    const Status status(StatusCode::kInvalidArgument,
                        std::string(kSwitch) + "=" + value +
                            " is neither 0 nor 1: the tensor arena is off; unset it, or set it to "
                            "1, to turn the arena on");
    LOG(ERROR) << status.message();
    return status;
  }
  if (!RegisterFactory()) {
    const Status status(StatusCode::kFailedPrecondition,
                        "The tensor arena is off, because TensorFlow allocated a tensor before "
                        "this library was loaded; import tensorflow first");
    LOG(WARNING) << status.message() << ". " << kOtherwise;
    return status;
  }
  return Status();
}

// Never destroyed: a server may be made while the process ends.
const Status& SetUpOnce() {
  static const Status* const status = new Status(SetUp());
  return *status;
}

// When the library is loaded: as early as can be.
[[maybe_unused]] const Status& set_up = SetUpOnce();

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

}  // namespace

CpuArena* CpuArena::Get() {
  CpuArena* const arena = activated.load(std::memory_order_acquire);
  return arena == nullptr || arena->forked_.load(std::memory_order_relaxed) ? nullptr : arena;
}

Status CpuArena::Activate() {
  // Never destroyed, as above.
  static std::mutex& mu = *new std::mutex;
  static const Status* outcome = nullptr;
  std::lock_guard<std::mutex> lock(mu);
  if (outcome != nullptr) return *outcome;
  const Status& possible = SetUpOnce();
  if (!possible.ok()) {
    outcome = &possible;
    return *outcome;
  }
  auto segment = memory::Segment::Create(SegmentSize());
  outcome = new Status(segment.status());
  if (!segment.ok()) {
    LOG(WARNING) << "No tensor arena: " << outcome->message() << ". " << kOtherwise << " "
                 << kSizeVariable << " asks for less, " << kSwitch << "=0 for none.";
    return *outcome;
  }
  CpuArena* const arena = new CpuArena(std::move(*segment), UsableMemory());
  arena->FollowForks();
  activated.store(arena, std::memory_order_release);
  return *outcome;
}

CpuArena::CpuArena(std::shared_ptr<memory::Segment> segment, uint64_t most_in_use)
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
        options.most_in_use = most_in_use;
        return options;
      }()) {
  exports_->AddSegment(segment_);
}

bool CpuArena::Owns(const void* data, size_t size) const {
  return Contains(data) && size <= size_ - OffsetOf(data);
}

std::shared_ptr<uint8_t> CpuArena::AllocateShared(uint64_t size) {
  auto* const data = static_cast<uint8_t*>(Allocate(ExtentAllocator::kGranule, size));
  if (data == nullptr) return nullptr;
  return std::shared_ptr<uint8_t>(data, [this](uint8_t* unused) { Free(unused); });
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
  const std::optional<uint64_t> offset = extents_.Allocate(bytes, alignment);
  return offset ? data_ + *offset : nullptr;
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
  if (forked_.load(std::memory_order_relaxed)) return;
  const std::vector<ExtentAllocator::Range> ranges =
      extents_.Trim(ExtentAllocator::Clock::now(), kDiscardedAtOnce);
  Status failed;
  for (const ExtentAllocator::Range& range : ranges) {
    const Status status = segment_->Discard(range.offset, range.length);
    extents_.Return(range, status.ok());
    if (!status.ok()) failed = status;
  }
  if (!failed.ok()) {
    // trims_ stays set: it would only fail again.
    LOG(WARNING) << "Tensors' memory is kept when it is idle: " << failed.message();
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
