// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/arena_allocator.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "tensorflow/tsl/framework/allocator.h"
#include "tensorflow/tsl/framework/allocator_registry.h"
#include "tensorflow/tsl/platform/logging.h"
#include "tensorflow/tsl/profiler/lib/scoped_memory_debug_annotation.h"
#include "tensorflow/tsl/profiler/lib/traceme.h"
#include "third_party/ar_grpc/memory/extent_allocator.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"

namespace ar_grpc {
namespace {

using memory::ExtentAllocator;
using tsl::AllocatorFactoryRegistry;

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
    const CpuArena* const arena = CpuArena::GetEvenInChild();
    if (!stats || arena == nullptr) return stats;
    const ExtentAllocator::Counters counters = arena->extent_counters();
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
    CpuArena* const arena = CpuArena::GetEvenInChild();
    if (arena != nullptr) arena->ResetPeaks();
    return true;
  }

  void SetSafeFrontier(tsl::uint64 count) override { stock_->SetSafeFrontier(count); }

  void SetStreamAndPreallocateMemory(void* stream) override {
    stock_->SetStreamAndPreallocateMemory(stream);
  }

 private:
  void* FromArena(size_t alignment, size_t bytes) {
    // Most tensors are smaller, and need no look at the arena.
    if (bytes < CpuArena::kSmallest) return nullptr;
    CpuArena* const arena = CpuArena::GetEvenInChild();
    if (arena == nullptr || bytes < arena->smallest()) return nullptr;
    void* const data = arena->Allocate(alignment, bytes);
    if (data != nullptr) Trace("MemoryAllocation", *arena, data, bytes);
    return data;
  }

  static CpuArena* ArenaOf(const void* data) {
    CpuArena* const arena = CpuArena::GetEvenInChild();
    return arena != nullptr && arena->Contains(data) ? arena : nullptr;
  }

  // For TensorFlow's memory profile, as its own allocators do.
  void Trace(const char* event, const CpuArena& arena, const void* data, size_t requested) {
    tsl::profiler::TraceMe::InstantActivity(
        [&] {
          const auto& annotation = tsl::profiler::ScopedMemoryDebugAnnotation::CurrentAnnotation();
          const auto text = [](const char* known) { return known != nullptr ? known : "(null)"; };
          const ExtentAllocator::Counters counters = arena.extent_counters();
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
  entry.source_file = "third_party/ar_grpc/tensorflow/arena_allocator.cc";
  entry.source_line = __LINE__;
  entry.name = "ArGrpcCpuArena";
  entry.priority = 1000;  // TensorFlow's own are 50 to 200.
  entry.factory = std::make_unique<ArenaFactory>();
  return true;
}

// OK, or why tensors cannot come from the arena.
Status Install() {
  const char* const value = std::getenv(kArenaSwitch);
  if (value != nullptr && std::strcmp(value, "0") == 0) {
    return Status(StatusCode::kFailedPrecondition, "AR_GRPC_ARENA=0 turns the tensor arena off");
  }
  if (value != nullptr && *value != '\0' && std::strcmp(value, "1") != 0) {
    const Status status(StatusCode::kInvalidArgument,
                        std::string(kArenaSwitch) + "=" + value +
                            " is neither 0 nor 1: the tensor arena is off; unset it, or set it to "
                            "1, to turn the arena on");
    LOG(ERROR) << status.message();
    return status;
  }
  if (!RegisterFactory()) {
    const Status status(StatusCode::kFailedPrecondition,
                        "The tensor arena is off, because TensorFlow allocated a tensor before "
                        "this library was loaded; import tensorflow first");
    LOG(WARNING) << status.message() << ". " << kWithoutArena;
    return status;
  }
  return Status();
}

}  // namespace

const Status& ArenaAllocatorInstalled() {
  // Never destroyed: a server may be made while the process ends.
  static const Status* const status = new Status(Install());
  return *status;
}

namespace {

// When the library is loaded: as early as can be.
[[maybe_unused]] const Status& at_load = ArenaAllocatorInstalled();

}  // namespace
}  // namespace ar_grpc
