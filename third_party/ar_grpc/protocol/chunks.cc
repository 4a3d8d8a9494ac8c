// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/chunks.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>

namespace ar_grpc::protocol {
namespace {

class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  Transfer(uint64_t size, uint64_t chunk, int in_flight, StartChunk start,
           std::function<void(Status)> done)
      : size_(size),
        chunk_(chunk),
        in_flight_(in_flight),
        start_(std::move(start)),
        done_(std::move(done)) {}

  // Starts what may be started. A chunk that ends at once does not nest another Pump: the one that
  // runs goes on, so the stack does not grow with the number of chunks.
  void Pump() {
    std::unique_lock<std::mutex> lock(mu_);
    if (pumping_) return;
    pumping_ = true;
    while (status_.ok() && next_ < size_ && under_way_ < in_flight_) {
      const uint64_t offset = next_;
      const uint64_t length = std::min(chunk_, size_ - offset);
      next_ += length;
      ++under_way_;
      lock.unlock();
      // A chunk whose end is told twice must not stand for one that is still written.
      start_(offset, length,
             [self = shared_from_this(),
              ended = std::make_shared<std::atomic<bool>>(false)](const Status& status) {
               if (!ended->exchange(true)) self->Ended(status);
             });
      lock.lock();
    }
    pumping_ = false;
    if (under_way_ > 0 || finished_ || (status_.ok() && next_ < size_)) return;
    finished_ = true;
    const Status status = status_;
    lock.unlock();
    // Let go first: what `start` holds may be the memory that the transfer wrote to, and a fabric
    // may hold a chunk's end, and with it this, for longer.
    start_ = nullptr;
    const std::function<void(Status)> done = std::exchange(done_, nullptr);
    done(status);
  }

 private:
  void Ended(const Status& status) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      --under_way_;
      if (status_.ok()) status_ = status;
    }
    Pump();
  }

  const uint64_t size_;
  const uint64_t chunk_;
  const int in_flight_;
  // Both are let go by the one Pump that finds all ended.
  StartChunk start_;
  std::function<void(Status)> done_;
  std::mutex mu_;
  // The rest is guarded by mu_.
  uint64_t next_ = 0;
  int under_way_ = 0;
  bool pumping_ = false;
  bool finished_ = false;
  Status status_;
};

}  // namespace

void TransferChunks(uint64_t size, uint64_t chunk, int in_flight, StartChunk start,
                    std::function<void(Status)> done) {
  std::make_shared<Transfer>(size, chunk, in_flight, std::move(start), std::move(done))->Pump();
}

}  // namespace ar_grpc::protocol
