// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/one_sided_read.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "third_party/ar_grpc/protocol/chunks.h"

namespace ar_grpc::protocol {
namespace {

Status Cancelled() { return {StatusCode::kCancelled, "the transfer was cancelled"}; }

// A read over a connection with inline_get. Whoever calls Work copies parts until none is left, so
// a thread that comes late, or never, delays nothing.
class CopyInParts : public std::enable_shared_from_this<CopyInParts> {
 public:
  CopyInParts(OneSidedRead read, std::function<void(const Status&)> done)
      : read_(std::move(read)),
        done_(std::move(done)),
        parts_(std::max<uint64_t>((read_.target.size + kPartBytes - 1) / kPartBytes, 1)),
        left_(parts_) {}

  void Start() {
    const int copiers = std::clamp(read_.most_copiers, 1, CopiersFor(read_.target.size));
    // A helper may end the last part, and let go of `read_`, while others are still asked for.
    const RunInPool run_in_pool = read_.run_in_pool;
    const bool here = !run_in_pool || read_.target.size <= kReadHere;
    int helpers = 0;
    for (int i = here ? 1 : 0; run_in_pool && i < copiers; ++i) {
      helpers += run_in_pool([self = shared_from_this()] { self->Work(); });
    }
    if (here || helpers == 0) Work();
  }

 private:
  void Work() {
    for (;;) {
      const uint64_t part = next_.fetch_add(1);
      if (part >= parts_) return;
      // After the first error nothing that is copied matters.
      if (failed_.load(std::memory_order_relaxed)) {
        Ended(OkStatus());
      } else if (!read_.gate->BeginWrite()) {
        Ended(Cancelled());
      } else {
        const uint64_t offset = part * kPartBytes;
        Status status;
        read_.link->connection()->Get(read_.from.key, read_.from.offset + offset,
                                      read_.target.into + offset,
                                      std::min(kPartBytes, read_.target.size - offset), nullptr,
                                      // Over by the time that Get returns, in this thread.
                                      [&status](Status ended) { status = std::move(ended); });
        read_.gate->EndWrite();
        // Not within Get: what follows the last part calls out, and a fabric's `done` must not.
        Ended(std::move(status));
      }
    }
  }

  void Ended(Status status) {
    if (!status.ok()) {
      std::lock_guard<std::mutex> lock(mu_);
      if (status_.ok()) status_ = std::move(status);
      failed_.store(true, std::memory_order_relaxed);
    }
    if (left_.fetch_sub(1) > 1) return;
    Status all;
    {
      std::lock_guard<std::mutex> lock(mu_);
      all = status_;
    }
    // Threads that have not begun yet hold this, and must not hold the transfer: they find no part
    // left and look at nothing else.
    const std::function<void(const Status&)> done = std::exchange(done_, nullptr);
    read_ = OneSidedRead();
    done(all);
  }

  // Both are let go by whoever ends the last part.
  OneSidedRead read_;
  std::function<void(const Status&)> done_;
  const uint64_t parts_;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> left_;  // parts that have not ended
  std::atomic<bool> failed_{false};
  std::mutex mu_;
  Status status_;  // guarded by mu_
};

// A read over a connection that answers later.
class LateRead : public std::enable_shared_from_this<LateRead> {
 public:
  explicit LateRead(OneSidedRead read) : read_(std::move(read)) {}

  void Part(uint64_t offset, uint64_t length, std::function<void(Status)> done) {
    if (read_.gate->closed()) return done(Cancelled());
    if (read_.target.keep != nullptr) {
      return read_.link->connection()->Get(
          read_.from.key, read_.from.offset + offset, read_.target.into + offset, length,
          read_.target.keep,
          [self = shared_from_this(), done](Status status) { done(std::move(status)); });
    }
    const std::shared_ptr<uint8_t> bounce = Allocate(length);
    if (bounce == nullptr) {
      return done({StatusCode::kResourceExhausted,
                   "no memory for " + std::to_string(length) + " bytes on their way"});
    }
    read_.link->connection()->Get(
        read_.from.key, read_.from.offset + offset, bounce.get(), length, bounce,
        [self = shared_from_this(), bounce, offset, length, done](Status status) {
          if (!status.ok()) return done(std::move(status));
          // A fabric's thread must not be kept by a copy.
          const auto copy = [self, bounce, offset, length, done] {
            done(self->Copy(bounce.get(), offset, length));
          };
          if (!self->read_.run_in_pool || !self->read_.run_in_pool(copy)) copy();
        });
  }

 private:
  std::shared_ptr<uint8_t> Allocate(uint64_t size) const {
    if (read_.allocate) return read_.allocate(size);
    return std::shared_ptr<uint8_t>(new (std::nothrow) uint8_t[size],
                                    std::default_delete<uint8_t[]>());
  }

  Status Copy(const uint8_t* from, uint64_t offset, uint64_t length) {
    if (!read_.gate->BeginWrite()) return Cancelled();
    std::memcpy(read_.target.into + offset, from, length);
    read_.gate->EndWrite();
    return OkStatus();
  }

  const OneSidedRead read_;
};

}  // namespace

void StartOneSidedRead(OneSidedRead read, std::function<void(const Status&)> done) {
  if (read.link->connection()->capabilities().inline_get) {
    // Whoever asked keeps the target until the end, after which nothing is written; a copier that
    // is late must not keep it any longer.
    read.target.keep.reset();
    return std::make_shared<CopyInParts>(std::move(read), std::move(done))->Start();
  }
  const uint64_t size = read.target.size;
  const ChunkPlan parts = read.parts;
  // A fabric's thread must not be kept by what follows, which may call out.
  auto end = [run_in_pool = read.run_in_pool, done = std::move(done)](const Status& status) {
    const auto task = [done, status] { done(status); };
    if (!run_in_pool || !run_in_pool(task)) task();
  };
  const auto late = std::make_shared<LateRead>(std::move(read));
  TransferChunks(
      size, parts.bytes, parts.in_flight,
      [late](uint64_t offset, uint64_t length, std::function<void(Status)> part_done) {
        late->Part(offset, length, std::move(part_done));
      },
      std::move(end));
}

}  // namespace ar_grpc::protocol
