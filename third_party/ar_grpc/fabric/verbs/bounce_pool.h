// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_BOUNCE_POOL_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_BOUNCE_POOL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/memory_region.h"
#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"

namespace ar_grpc::fabric::verbs {

// Memory by way of which bytes go that are not registered at this end: the target of a READ, the
// source of a WRITE. To copy a few takes less than to register where they are, and to register many
// may be refused. A device's connections share one pool, and it lives as long as any of them. It is
// registered once somebody has asked for it, in a thread of its own: Take does not wait for that,
// Await's callback does. Thread-safe.
class BouncePool : public std::enable_shared_from_this<BouncePool> {
 public:
  // A copy of as much takes no longer than registering anything does, and keeps no poller.
  static constexpr size_t kPieceBytes = 128 << 10;
  static constexpr size_t kPieces = 8;

  explicit BouncePool(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  // A piece of it, until this is destroyed.
  class Piece {
   public:
    Piece(std::shared_ptr<BouncePool> pool, std::shared_ptr<MemoryRegion> region, size_t index);
    ~Piece();
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
    uint8_t* data() const { return data_; }
    const std::shared_ptr<MemoryRegion>& region() const { return region_; }

   private:
    const std::shared_ptr<BouncePool> pool_;
    const std::shared_ptr<MemoryRegion> region_;
    const size_t index_;
    uint8_t* const data_;
  };
  using Pieces = std::vector<std::shared_ptr<Piece>>;
  // As many as there are now, `most` of them; perhaps none.
  Pieces Take(size_t most);
  // Gives one once there is one, at once or in another thread, holding no lock; nullptr where the
  // pool, too, cannot be registered. Has it registered if need be.
  using Given = std::function<void(std::shared_ptr<Piece>)>;
  void Await(Given given);
  // Has it registered soon.
  void Ask();

 private:
  void Register();
  // Requires mu_.
  std::shared_ptr<Piece> TakeLocked();

  const std::shared_ptr<Device> device_;
  std::mutex mu_;
  // The rest is guarded by mu_. The region ends before its memory.
  std::shared_ptr<uint8_t> memory_;
  std::shared_ptr<MemoryRegion> region_;
  std::vector<size_t> free_;
  std::deque<Given> waiting_;  // until a piece comes back, or the pool is registered
  bool asked_ = false;
  std::chrono::steady_clock::time_point not_before_{};
};

// Does `transfer`, a READ or a WRITE, by way of pieces: each takes a part, and then the next one.
// It has the peer's side and the size; `local` is this end's, which a WRITE only reads.
void BounceBy(BouncePool::Pieces pieces, const std::shared_ptr<QueuePair>& pair,
              const Operation& transfer, void* local, std::shared_ptr<const void> keep, Done done);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_BOUNCE_POOL_H_
