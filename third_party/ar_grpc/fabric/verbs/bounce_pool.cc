// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/bounce_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/work_queue.h"

namespace ar_grpc::fabric::verbs {
namespace {

using Piece = BouncePool::Piece;

// A transfer in as many parts as it takes, one in each piece at a time.
class Bounced : public std::enable_shared_from_this<Bounced> {
 public:
  Bounced(std::shared_ptr<QueuePair> pair, const Operation& transfer, void* local,
          std::shared_ptr<const void> keep, Done done)
      : pair_(std::move(pair)),
        opcode_(transfer.opcode),
        payload_(transfer.payload),
        remote_(transfer.remote),
        rkey_(transfer.rkey),
        size_(transfer.size),
        local_(static_cast<uint8_t*>(local)),
        keep_(std::move(keep)),
        done_(std::move(done)) {}

  void Start(BouncePool::Pieces pieces) {
    under_way_ = pieces.size();
    for (std::shared_ptr<Piece>& piece : pieces) Next(std::move(piece));
  }

 private:
  void Next(std::shared_ptr<Piece> piece) {
    uint64_t offset = 0;
    {
      std::lock_guard<std::mutex> lock(mu_);
      offset = next_;
      if (status_.ok() && offset < size_) {
        next_ += std::min<uint64_t>(BouncePool::kPieceBytes, size_ - offset);
      } else if (--under_way_ > 0) {
        return;
      } else {
        offset = size_;
      }
    }
    if (offset == size_) {
      piece.reset();
      return End();
    }
    const bool reads = opcode_ == abi::kRdmaRead;
    auto part = std::make_shared<Operation>();
    part->opcode = opcode_;
    part->payload = payload_;
    part->local = reinterpret_cast<uintptr_t>(piece->data());
    part->region = piece->region();
    part->remote = remote_ + offset;
    part->rkey = rkey_;
    part->size = std::min<uint64_t>(BouncePool::kPieceBytes, size_ - offset);
    part->keep = piece;
    if (!reads) std::memcpy(piece->data(), local_ + offset, part->size);
    part->done = [self = shared_from_this(), piece, offset, reads,
                  size = part->size](Status status) {
      if (status.ok()) {
        if (reads) std::memcpy(self->local_ + offset, piece->data(), size);
      } else {
        std::lock_guard<std::mutex> lock(self->mu_);
        if (self->status_.ok()) self->status_ = std::move(status);
      }
      self->Next(piece);
    };
    pair_->Submit(std::move(part));
  }

  // Nobody else is in this any more.
  void End() {
    const Done done = std::exchange(done_, nullptr);
    if (done) done(status_);
    keep_.reset();
  }

  const std::shared_ptr<QueuePair> pair_;
  const int opcode_;
  const bool payload_;
  const uint64_t remote_;
  const uint32_t rkey_;
  const uint64_t size_;
  uint8_t* const local_;
  std::shared_ptr<const void> keep_;
  Done done_;
  std::mutex mu_;
  Status status_;         // the first error; guarded by mu_
  uint64_t next_ = 0;     // guarded by mu_
  size_t under_way_ = 0;  // pieces in use; guarded by mu_
};

}  // namespace

BouncePool::Piece::Piece(std::shared_ptr<BouncePool> pool, std::shared_ptr<MemoryRegion> region,
                         size_t index)
    : pool_(std::move(pool)),
      region_(std::move(region)),
      index_(index),
      data_(reinterpret_cast<uint8_t*>(region_->start()) + index * kPieceBytes) {}

BouncePool::Piece::~Piece() {
  // In a child any thread of the parent may hold the lock.
  if (pool_->device_->InChild()) return;
  Given given;
  std::shared_ptr<Piece> next;
  {
    std::lock_guard<std::mutex> lock(pool_->mu_);
    pool_->free_.push_back(index_);
    if (pool_->waiting_.empty()) return;
    given = std::move(pool_->waiting_.front());
    pool_->waiting_.pop_front();
    next = pool_->TakeLocked();
  }
  given(std::move(next));
}

BouncePool::Pieces BouncePool::Take(size_t most) {
  Pieces taken;
  std::lock_guard<std::mutex> lock(mu_);
  while (taken.size() < most && !free_.empty()) taken.push_back(TakeLocked());
  return taken;
}

std::shared_ptr<Piece> BouncePool::TakeLocked() {
  auto piece = std::make_shared<Piece>(shared_from_this(), region_, free_.back());
  free_.pop_back();
  return piece;
}

void BouncePool::Await(Given given) {
  Ask();
  std::shared_ptr<Piece> piece;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!free_.empty()) {
      piece = TakeLocked();
    } else if (asked_) {
      waiting_.push_back(std::move(given));
      return;
    }
  }
  given(std::move(piece));
}

void BouncePool::Ask() {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (asked_ || std::chrono::steady_clock::now() < not_before_) return;
    asked_ = true;
  }
  Registrar().Run([weak = weak_from_this()] {
    if (const std::shared_ptr<BouncePool> self = weak.lock()) self->Register();
  });
}

void BouncePool::Register() {
  // Shared memory, of which a fork makes no copy.
  StatusOr<std::shared_ptr<uint8_t>> memory =
      Map(-1, kPieces * kPieceBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
  StatusOr<std::shared_ptr<MemoryRegion>> region = memory.status();
  if (memory.ok()) {
    region = MemoryRegion::Register(device_, memory->get(), kPieces * kPieceBytes,
                                    abi::kAccessLocalWrite);
  }
  std::vector<std::pair<Given, std::shared_ptr<Piece>>> served;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (region.ok()) {
      memory_ = std::move(*memory);
      region_ = std::move(*region);
      for (size_t i = 0; i < kPieces; ++i) free_.push_back(i);
    } else {
      asked_ = false;
      not_before_ = std::chrono::steady_clock::now() + kRefusalKept;
    }
    while (!waiting_.empty() && (!region.ok() || !free_.empty())) {
      served.emplace_back(std::move(waiting_.front()), region.ok() ? TakeLocked() : nullptr);
      waiting_.pop_front();
    }
  }
  for (auto& [given, piece] : served) given(std::move(piece));
}

void BounceBy(BouncePool::Pieces pieces, const std::shared_ptr<QueuePair>& pair,
              const Operation& transfer, void* local, std::shared_ptr<const void> keep, Done done) {
  std::make_shared<Bounced>(pair, transfer, local, std::move(keep), std::move(done))
      ->Start(std::move(pieces));
}

}  // namespace ar_grpc::fabric::verbs
