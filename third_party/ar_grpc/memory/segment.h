// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MEMORY_SEGMENT_H_
#define THIRD_PARTY_AR_GRPC_MEMORY_SEGMENT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/memory/shared_memory.h"

namespace ar_grpc::memory {

// kUnimplemented where the kernel may refuse a page of a segment when it is touched, which would
// end the process (vm.overcommit_memory=2, proc(5)).
Status SparsePagesGuaranteed();

// A range of this process's memory that belongs to no fabric. Fabrics register parts of it, so that
// peers can access them. It is a memfd, which processes of the same host can map: they get a
// descriptor opened for reading, over which no writable mapping can be made. (F_SEAL_FUTURE_WRITE
// would say the same of every descriptor, but the kernel then refuses to punch holes, and Discard
// could return nothing to the system.) Pages take memory when they are first touched. Thread-safe.
class Segment {
 public:
  // `size` bytes, rounded up to whole pages. kResourceExhausted names the limit that is too small.
  static StatusOr<std::shared_ptr<Segment>> Create(size_t size);

  uint8_t* data() const { return memory_.data.get(); }
  size_t size() const { return size_; }
  // What tells the segments of this process apart; never 0.
  uint64_t id() const { return id_; }

  // The offset of [data, data + size) in the segment; nullopt where that is not wholly in it.
  std::optional<uint64_t> OffsetOf(const void* data, size_t size) const;

  // Returns the pages of [offset, offset + length) to the system; they read as zeros. Both are
  // multiples of the page size. A fabric that pins pages (verbs) must have deregistered them.
  Status Discard(size_t offset, size_t length);

  // In a child after fork: what the child writes stays its own, and no fabric shares it. Pages that
  // it has not written may still show what the parent writes. Async-signal-safe.
  void MakePrivateAfterFork();
  // false in a forked child: there the file holds the parent's bytes, not this process's.
  bool Shareable() const;
  // For peers of this host, read-only. Owned by the segment.
  int read_only_fd() const { return read_only_.get(); }

 private:
  Segment(SharedMemory memory, UniqueFd read_only, size_t size);

  const SharedMemory memory_;
  const UniqueFd read_only_;
  const size_t size_;
  const uint64_t id_;
  const uint32_t fork_count_;
  std::atomic<bool> private_{false};
};

}  // namespace ar_grpc::memory

#endif  // THIRD_PARTY_AR_GRPC_MEMORY_SEGMENT_H_
