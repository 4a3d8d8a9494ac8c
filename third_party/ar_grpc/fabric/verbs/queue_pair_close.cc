// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// How a queue pair ends: what is under way ends first, then what the device has is destroyed, and
// whoever waits for the close hears of it last.

#include <array>
#include <cerrno>
#include <utility>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/closed_in_child.h"
#include "third_party/ar_grpc/fabric/verbs/pair_states.h"
#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"

namespace ar_grpc::fabric::verbs {
namespace {

// What the device has not given back by then it is made to, by the end of the queue pair. A pair
// that cannot be destroyed is tried again after as long.
constexpr int kDrainMs = 2000;
// Over iWARP what is given back comes at once, but soft-iWARP keeps what it was told after its
// connection had ended.
constexpr int kIwarpDrainMs = 100;
// What was written before a close has this time to arrive, and the peer to hear of it.
constexpr int kCloseMs = 500;

Status Closed() {
  return Status(StatusCode::kUnavailable, "the RDMA connection is closed by this end");
}

}  // namespace

void QueuePair::End(Status why, Operations* ended) {
  if (status_.ok()) status_ = std::move(why);
  closed_.store(true, std::memory_order_release);
  StopPair(ended);
  WakeUp(wake_.get());
  if (heard_) Heard();
  if (answered_) Answered();
}

// What is posted ends with its completion, or with the queue pair.
void QueuePair::StopPair(Operations* ended) {
  if (std::exchange(stopped_, true)) return;
  sends_.Stop(status_, ended);
  // One that cannot be stopped is destroyed.
  if (pair_ != nullptr && !(connecting_ && device_->iwarp())) {
    static_cast<void>(Stop(*device_, pair_));
  }
  const int drain_ms = device_->iwarp() ? kIwarpDrainMs : kDrainMs;
  DestroySoon(sends_.busy() ? drain_ms : 0);
}

void QueuePair::Close(std::function<void()> done) {
  if (device_->InChild()) {
    if (done) done();
    return;
  }
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!gone_ || finishing_ > 0) {
      if (done) closers_.push_back(std::exchange(done, nullptr));
      first = !std::exchange(closing_, true);
    }
    if (status_.ok()) status_ = Closed();
    closed_.store(true, std::memory_order_release);
  }
  if (done) done();
  if (!first) return;
  // The reactor has run since the device was opened.
  static_cast<void>(StartOnReactor([self = shared_from_this()] {
    self->Locked([&self](Operations* ended) { self->CloseInOrder(ended); });
  }));
}

// A pair that was never connected has nobody to tell.
void QueuePair::CloseInOrder(Operations* ended) {
  WakeUp(wake_.get());
  const uint32_t buffer =
      connected_ && !stopped_ ? stream_->TakeForClose() : FrameStream::kNoBuffer;
  if (buffer == FrameStream::kNoBuffer) return StopPair(ended);
  // What waits does not begin any more; what the device has may end well until the peer knows.
  sends_.Stop(status_, ended);
  close_sent_ = true;
  if (!PostFrame(buffer, FrameKind::kClose, 0, ended)) return;
  AwaitAnswers(ended);
  Reactor::Get().RunAfter(kCloseMs, [self = shared_from_this()] {
    self->Locked([&self](Operations* ended) { self->StopPair(ended); });
  });
}

void QueuePair::DestroySoon(int delay_ms) {
  Reactor::Get().RunAfter(delay_ms, [self = shared_from_this()] { self->Destroy(); });
}

void QueuePair::Destroy() {
  abi::QueuePair* pair = nullptr;
  Locked([&](Operations* ended) {
    if (connecting_ || growing_ > 0) return;  // Connect, or Grow, comes back
    while (pair_ != nullptr && TakeSent(ended) + TakeReceived(ended) > 0) {
    }
    pair = std::exchange(pair_, nullptr);
  });
  if (pair == nullptr || !DestroyPair(pair)) return;
  std::array<abi::CompletionQueue*, 2> queues{};
  std::vector<std::shared_ptr<MemoryRegion>> regions;  // end without the lock
  std::shared_ptr<const void> link;                    // likewise
  std::function<void()> heard;
  std::function<void()> answered;
  Locked([&](Operations* ended) {
    queues = {std::exchange(sent_, nullptr), std::exchange(received_, nullptr)};
    regions = std::move(regions_);
    link = std::move(link_);
    heard.swap(heard_);
    answered.swap(answered_);
    sends_.Abandon(ended);
  });
  for (abi::CompletionQueue* const queue : queues) {
    device_->Remove(queue);
    std::unique_lock<std::mutex> no_fork = HoldOffForks();
    const int error = device_->library().destroy_cq(queue);
    no_fork.unlock();
    if (error != 0) {
      Log(Severity::kError,
          ErrnoStatus(error, "destroying a queue of " + device_->name()).message());
    }
  }
  regions.clear();
  std::vector<std::function<void()>> closers;
  {
    std::lock_guard<std::mutex> lock(mu_);
    gone_ = true;
    // Else whoever runs an end now comes to it.
    if (finishing_ == 0) closers.swap(closers_);
  }
  for (const std::function<void()>& closer : closers) closer();
}

bool QueuePair::DestroyPair(abi::QueuePair* pair) {
  std::unique_lock<std::mutex> no_fork = HoldOffForks();
  const int error = device_->library().destroy_qp(pair);
  no_fork.unlock();
  // A device that the kernel has taken away answers so, and took its queue pairs along.
  if (error == 0 || (error == EIO && device_->failed())) return true;
  // It may still write: what it was told to stays as it is until the pair is destroyed.
  std::lock_guard<std::mutex> lock(mu_);
  if (!std::exchange(complained_, true)) {
    Log(Severity::kError,
        ErrnoStatus(error, "destroying a queue pair of " + device_->name()).message());
  }
  pair_ = pair;
  DestroySoon(kDrainMs);
  return false;
}

}  // namespace ar_grpc::fabric::verbs
