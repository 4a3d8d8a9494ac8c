// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/ring.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace ar_grpc::fabric {
namespace {

// A large copy is published in pieces, so that the other end copies one while this end copies the
// next.
constexpr size_t kPublishBytes = 128 * 1024;

Status Lie(const char* whose, uint64_t from, uint64_t to, const char* bound, uint64_t limit) {
  return Status(StatusCode::kInternal, std::string("the peer's ") + whose + " counter went from " +
                                           std::to_string(from) + " to " + std::to_string(to) +
                                           ", outside of " + bound + " " + std::to_string(limit));
}

void WakeIfArmed(std::atomic<uint32_t>* armed, Doorbell* doorbell) {
  // Looked at before it is taken: the flag's cache line stays shared while nobody sleeps.
  if (armed->load(std::memory_order_seq_cst) == 0) return;
  if (armed->exchange(0, std::memory_order_seq_cst) != 0) doorbell->WakePeer();
}

}  // namespace

Status RingWriter::Refresh(std::memory_order order) {
  const uint64_t consumed = ring_.control->consumed.load(order);
  // Monotonic, and never ahead of what was written; both in one unsigned comparison.
  if (consumed - consumed_ > written_ - consumed_) {
    return Lie("read", consumed_, consumed, "what was written:", written_);
  }
  consumed_ = consumed;
  return Status();
}

void RingWriter::Publish(size_t size) {
  if (size == 0) return;
  written_ += size;
  ring_.control->written.store(written_, std::memory_order_seq_cst);
  WakeIfArmed(ring_.reader_armed, ring_.doorbell);
}

StatusOr<size_t> RingWriter::Write(const iovec* parts, int count) {
  size_t taken = 0;
  size_t unpublished = 0;
  for (int i = 0; i < count; ++i) {
    const uint8_t* from = static_cast<const uint8_t*>(parts[i].iov_base);
    size_t left = parts[i].iov_len;
    while (left > 0) {
      const uint64_t next = written_ + unpublished;
      size_t room = ring_.capacity - (next - consumed_);
      if (room == 0) {
        if (Status status = Refresh(std::memory_order_acquire); !status.ok()) return status;
        room = ring_.capacity - (next - consumed_);
      }
      if (room == 0) {
        Publish(unpublished);
        starved_ = true;
        return taken;
      }
      const size_t position = next & (ring_.capacity - 1);
      const size_t size =
          std::min({left, room, ring_.capacity - position, kPublishBytes - unpublished});
      std::memcpy(ring_.data + position, from, size);
      from += size;
      left -= size;
      taken += size;
      unpublished += size;
      if (unpublished == kPublishBytes) {
        Publish(unpublished);
        unpublished = 0;
      }
    }
  }
  Publish(unpublished);
  starved_ = false;
  return taken;
}

StatusOr<bool> RingWriter::WriteAll(const void* from, size_t size) {
  if (ring_.capacity - (written_ - consumed_) < size) {
    if (Status status = Refresh(std::memory_order_acquire); !status.ok()) return status;
  }
  starved_ = ring_.capacity - (written_ - consumed_) < size;
  if (starved_) return false;
  const iovec part = {const_cast<void*>(from), size};
  StatusOr<size_t> taken = Write(&part, 1);
  if (!taken.ok()) return taken.status();
  return *taken == size;
}

StatusOr<bool> RingWriter::Arm() {
  if (!starved_) return false;
  ring_.control->writer_armed.store(1, std::memory_order_seq_cst);
  if (Status status = Refresh(std::memory_order_seq_cst); !status.ok()) return status;
  if (written_ - consumed_ > ring_.capacity / 2) return true;
  ring_.control->writer_armed.store(0, std::memory_order_relaxed);
  return false;
}

Status RingReader::Refresh(std::memory_order order) {
  const uint64_t written = ring_.control->written.load(order);
  // Monotonic, and never further ahead than the ring holds.
  if (written - written_ > ring_.capacity - (written_ - consumed_)) {
    return Lie("write", written_, written, "what the ring holds:", consumed_ + ring_.capacity);
  }
  written_ = written;
  return Status();
}

Status RingReader::Release(size_t size) {
  consumed_ += size;
  ring_.control->consumed.store(consumed_, std::memory_order_seq_cst);
  if (ring_.control->writer_armed.load(std::memory_order_seq_cst) == 0) return Status();
  // A writer that sleeps wrote its last before it armed, so this sees the end of its data.
  if (Status status = Refresh(std::memory_order_acquire); !status.ok()) return status;
  if (written_ - consumed_ <= ring_.capacity / 2) {
    WakeIfArmed(&ring_.control->writer_armed, ring_.doorbell);
  }
  return Status();
}

StatusOr<size_t> RingReader::Read(void* into, size_t size) {
  uint8_t* to = static_cast<uint8_t*>(into);
  size_t taken = 0;
  while (taken < size) {
    if (written_ == consumed_) {
      if (Status status = Refresh(std::memory_order_acquire); !status.ok()) return status;
      if (written_ == consumed_) break;
    }
    const size_t position = consumed_ & (ring_.capacity - 1);
    const size_t piece = std::min({size - taken, static_cast<size_t>(written_ - consumed_),
                                   ring_.capacity - position, kPublishBytes});
    std::memcpy(to + taken, ring_.data + position, piece);
    taken += piece;
    if (Status status = Release(piece); !status.ok()) return status;
  }
  return taken;
}

StatusOr<size_t> RingReader::Readable() {
  if (Status status = Refresh(std::memory_order_acquire); !status.ok()) return status;
  return static_cast<size_t>(written_ - consumed_);
}

StatusOr<bool> RingReader::Arm() {
  ring_.reader_armed->store(1, std::memory_order_seq_cst);
  if (Status status = Refresh(std::memory_order_seq_cst); !status.ok()) return status;
  if (written_ == consumed_) return true;
  ring_.reader_armed->store(0, std::memory_order_relaxed);
  return false;
}

}  // namespace ar_grpc::fabric
