// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_CPU_ARENA_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_CPU_ARENA_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/memory/extent_allocator.h"
#include "third_party/ar_grpc/memory/segment.h"
#include "third_party/ar_grpc/protocol/exports.h"

namespace ar_grpc {

// Shared memory that CPU tensors are allocated from, so that a peer on this machine copies a tensor
// once, from where an operation wrote it to where the next one reads it. Its pages outlive the
// tensors, so that a step over any fabric finds its memory warm.
//
// From Activate on, tensors of smallest() bytes and more come from it (arena_allocator.h); smaller
// ones, and all when it is full, from TensorFlow's own allocator as before.
//
// In a forked child the arena's memory becomes the child's own, nothing more is allocated there and
// nothing is given back: the file belongs to the parent. A page that the child has not written
// shows what the parent writes to it later, or frees.
//
// AR_GRPC_ARENA=0 turns all of this off; AR_GRPC_ARENA_SIZE says how large the segment is.
class CpuArena {
 public:
  // A smaller tensor travels in the message itself: to say where it lies would take as long.
  static constexpr size_t kSmallest = 16 * 1024;
  // Where no peer reads it: below that malloc seldom gives pages back, and is the faster one.
  static constexpr size_t kSmallestUnread = 1024 * 1024;

  struct Counters {
    uint64_t size = 0;       // of the segment; nearly all of it takes no memory
    uint64_t in_use = 0;     // bytes in tensors
    uint64_t warm_free = 0;  // bytes that are free and still hold memory, for the next tensors
    uint64_t peak_in_use = 0;
    uint64_t allocations = 0;
  };

  // nullptr until it is activated, where it could not be, and in a forked child.
  static CpuArena* Get();
  // As Get, but not nullptr in a forked child, which may free what its parent allocated.
  static CpuArena* GetEvenInChild() { return activated_.load(std::memory_order_acquire); }

  // Makes the arena, from which tensors are allocated from now on. Those that exist stay where they
  // are. Thread-safe. The first call decides; later ones give its outcome. When it fails, one line
  // of the log says why, and tensors travel through the stream.
  static Status Activate();

  // From now on peers may read it: a server has a fabric for that.
  void LetPeersRead() { peers_read_.store(true, std::memory_order_relaxed); }
  bool PeersRead() const { return peers_read_.load(std::memory_order_relaxed); }
  // Bytes of the smallest tensor that comes from it.
  size_t smallest() const { return PeersRead() ? kSmallest : kSmallestUnread; }

  // What peers may read of it: the same for all nodes of this process, whose tensors share it.
  const std::shared_ptr<protocol::Exports>& exports() const { return exports_; }

  // Whether [data, data + size) is memory of the arena.
  bool Owns(const void* data, size_t size) const;

  // `size` bytes of the arena, not through TensorFlow's allocator, which TF_CPU_ALLOCATOR_USE_BFC
  // and NUMA bypass; nullptr when it is full or there is none. Given back with the last reference.
  static std::shared_ptr<uint8_t> AllocateShared(uint64_t size);

  Counters counters() const;

  // --- for the allocator ---

  // nullptr where TensorFlow's own allocator shall serve.
  void* Allocate(size_t alignment, size_t bytes);
  // Whether `data` was allocated here, and so is to be freed here.
  bool Contains(const void* data) const {
    return reinterpret_cast<uintptr_t>(data) - reinterpret_cast<uintptr_t>(data_) < size_;
  }
  // Both require that Contains(data).
  void Free(void* data);
  uint64_t SizeOf(const void* data) const;

  memory::ExtentAllocator::Counters extent_counters() const { return extents_.counters(); }
  void ResetPeaks() { extents_.ResetPeaks(); }

 private:
  CpuArena(std::shared_ptr<memory::Segment> segment, uint64_t usable_memory);

  // Requires that Contains(data).
  uint64_t OffsetOf(const void* data) const {
    return static_cast<uint64_t>(static_cast<const uint8_t*>(data) - data_);
  }

  // So many bytes of cold memory are going to be touched: of the warm memory that is too much
  // beside them, as many are given back, though it was in use lately.
  void GiveBackExcess(uint64_t cold);
  void StartTrimming();
  void TrimAfter(std::chrono::milliseconds delay);
  void Trim();
  void TrimSome();
  // Gives idle memory back to the system, and to extents_; what cannot be given now goes to
  // kept_. Whether any was given back.
  StatusOr<bool> DiscardOrKeep(const std::vector<memory::ExtentAllocator::Range>& ranges);
  void FollowForks();

  // Set once; lives as long as the process, as tensors are freed until the very end.
  static std::atomic<CpuArena*> activated_;

  const std::shared_ptr<memory::Segment> segment_;
  const std::shared_ptr<protocol::Exports> exports_;
  uint8_t* const data_;
  const size_t size_;
  memory::ExtentAllocator extents_;
  // What could not be discarded, as a fabric still has it registered: taken out of extents_ until
  // all that is idle was tried, or it would be tried again and again. Only one thread trims at a
  // time.
  std::vector<memory::ExtentAllocator::Range> kept_;
  // A timer is set, or Trim runs.
  std::atomic<bool> trims_{false};
  // Never false again: one server of this process may have such a fabric, and the next one not.
  std::atomic<bool> peers_read_{false};
  // In a child of the process that activated it.
  std::atomic<bool> forked_{false};
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_CPU_ARENA_H_
