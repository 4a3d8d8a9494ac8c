// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_RING_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_RING_H_

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/doorbell.h"

// A byte ring for one writer and one reader over memory that both share and neither trusts.
//
// Each end keeps its own counter privately and only publishes it, so that a peer that overwrites
// the shared one harms nobody else. What is read of the peer's is validated before use: a lie is
// a kInternal status, never an access outside of the ring.
//
// No lost wake-up (Dekker): the sleeper sets its flag and looks again; the other end publishes and
// then looks at the flag. All four accesses are seq_cst, which costs one locked instruction as a
// fence would, and which ThreadSanitizer understands.
namespace ar_grpc::fabric {

// In shared memory, all zeros at first. Fields are apart so that no two ends write to one cache
// line, nor to neighbours that the prefetcher pairs.
struct RingControl {
  static constexpr size_t kApart = 128;
  alignas(kApart) std::atomic<uint64_t> written;   // bytes ever, by the writer
  alignas(kApart) std::atomic<uint64_t> consumed;  // bytes ever, by the reader
  alignas(kApart) std::atomic<uint32_t> reader_armed;
  alignas(kApart) std::atomic<uint32_t> writer_armed;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

// What both ends know of a ring. `capacity` is a power of two. Nothing here is owned.
struct RingView {
  RingControl* control;
  std::atomic<uint32_t>* reader_armed;  // may be another ring's: its reader sleeps for both
  uint8_t* data;
  size_t capacity;
  Doorbell* doorbell;
};

class RingWriter {
 public:
  explicit RingWriter(const RingView& ring) : ring_(ring) {}

  // Copies as much of `parts` as there is room for. Returns the bytes taken.
  StatusOr<size_t> Write(const iovec* parts, int count);
  // The same, but all or nothing.
  StatusOr<bool> WriteAll(const void* from, size_t size);

  // Whether the last write was cut short by a full ring.
  bool starved() const { return starved_; }
  // After a short write: asks to be woken once at most half of the ring is filled. false: it is
  // so already. Waiting for half keeps two ends from waking each other for every few bytes.
  StatusOr<bool> Arm();

 private:
  Status Refresh(std::memory_order order);
  void Publish(size_t size);

  const RingView ring_;
  uint64_t written_ = 0;
  uint64_t consumed_ = 0;  // the peer's counter when last seen
  bool starved_ = false;
};

class RingReader {
 public:
  explicit RingReader(const RingView& ring) : ring_(ring) {}

  // Copies up to `size` bytes out. Returns the bytes read.
  StatusOr<size_t> Read(void* into, size_t size);
  // Bytes that lie in the ring now.
  StatusOr<size_t> Readable();
  // Asks to be woken for bytes. false: there are some already.
  StatusOr<bool> Arm();

 private:
  Status Refresh(std::memory_order order);
  Status Release(size_t size);

  const RingView ring_;
  uint64_t consumed_ = 0;
  uint64_t written_ = 0;  // the peer's counter when last seen
};

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_RING_H_
