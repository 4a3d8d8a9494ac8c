// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/receiver.h"

#include <array>
#include <atomic>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/protocol/chunks.h"
#include "third_party/ar_grpc/protocol/release_batch.h"

namespace ar_grpc::protocol {
namespace {

// Releases that were lost with their link and are told by one transfer's calls, at most.
constexpr size_t kUntoldAtOnce = 16;

Status Cancelled() { return {StatusCode::kCancelled, "the transfer was cancelled"}; }

// What was copied before this was read before what is looked at after it.
void CopiesEnded() {
#if !defined(__SANITIZE_THREAD__)  // which knows no fences
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

// Tickets that a thread has drawn and not used: a system call for each would be a good part of what
// a small transfer takes.
struct Tickets {
  std::array<uint64_t, 32> drawn{};
  size_t left = 0;
  uint32_t fork_count = 0;
};

uint64_t NewTicket() {
  thread_local Tickets tickets;
  // A forked child must not use its parent's.
  if (tickets.left == 0 || tickets.fork_count != ForkCount()) {
    // Without getrandom it only names the transfer; then no peer reads memory (fabric/shm is off).
    if (!FillRandom(tickets.drawn.data(), sizeof(tickets.drawn))) return RandomSeed();
    tickets.left = tickets.drawn.size();
    tickets.fork_count = ForkCount();
  }
  return tickets.drawn[--tickets.left];
}

}  // namespace

uint64_t RunningCalls::Begin() {
  std::lock_guard<std::mutex> lock(mu_);
  if (cancelled_) return 0;
  running_[++last_] = nullptr;
  return last_;
}

void RunningCalls::Started(uint64_t call, std::function<void()> cancel) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = running_.find(call);
    if (found == running_.end()) return;
    if (!cancelled_) {
      found->second = std::move(cancel);
      return;
    }
  }
  // Cancelled before the call could hear of it.
  if (cancel) cancel();
}

void RunningCalls::Ended(uint64_t call) {
  // What the function holds is destroyed without the lock.
  std::map<uint64_t, std::function<void()>>::node_type ended;
  std::lock_guard<std::mutex> lock(mu_);
  ended = running_.extract(call);
}

void RunningCalls::Cancel() {
  std::vector<std::function<void()>> cancels;
  {
    std::lock_guard<std::mutex> lock(mu_);
    cancelled_ = true;
    for (auto& [call, cancel] : running_) {
      if (cancel) cancels.push_back(cancel);
    }
  }
  for (const std::function<void()>& cancel : cancels) cancel();
}

std::shared_ptr<Receiver> Receiver::Create(Options options) {
  return std::shared_ptr<Receiver>(new Receiver(std::move(options)));
}

Receiver::Receiver(Options options)
    : options_(std::move(options)),
      ask_{options_.node->id(), NewTicket()},
      gate_(options_.gate != nullptr ? options_.gate : std::make_shared<WriteGate>()) {}

void Receiver::Start(const Offer& offer, TargetBuffer target, std::function<void(Status)> done) {
  target_ = std::move(target);
  done_ = std::move(done);
  if (offer.ticket != ask_.ticket || offer.size != target_.size) {
    GiveUp();
    return End({StatusCode::kInternal, "the peer offered " + std::to_string(offer.size) +
                                           " bytes where " + std::to_string(target_.size) +
                                           " were asked for"});
  }
  sender_ = offer.sender;
  options_.node->servers().RememberSender(options_.task, sender_);
  for (const uint64_t ticket : options_.node->TakeUntold(sender_, kUntoldAtOnce)) {
    ReleaseByCall(sender_, ticket);
  }
  if (target_.into == nullptr && target_.size > 0) {
    Release(nullptr, sender_);
    return End({StatusCode::kResourceExhausted,
                "there is no memory for the " + std::to_string(target_.size) + " bytes to go to"});
  }
  if (gate_->closed()) {
    Release(nullptr, sender_);
    return End(Cancelled());
  }
  if (!offer.readable.has_value()) return FetchChunks(/*late=*/false);
  std::shared_ptr<Link> link = options_.node->LinkToRead(sender_, offer.readable->link);
  // Where the link has gone, the sender may hold the bytes all the same, for another link.
  if (link == nullptr) return FetchChunks(/*late=*/true);
  Read(std::move(link), *offer.readable);
}

void Receiver::Read(std::shared_ptr<Link> link, const Offer::Readable& from) {
  Exports* const exports = options_.node->exports();
  // To register the target for this one read would keep the thread that polls.
  if (link->connection()->capabilities().pins && exports != nullptr && target_.keep != nullptr &&
      exports->Contains(target_.into, target_.size) &&
      !exports->Registered(*link, target_.into, target_.size)) {
    return FetchChunks(/*late=*/false);
  }
  OneSidedRead read;
  read.link = link;
  read.from = from;
  read.target = target_;
  read.gate = gate_;
  read.run_in_pool = options_.run_in_pool;
  read.allocate = options_.allocate;
  read.most_copiers = options_.most_copiers;
  if (!link->connection()->capabilities().inline_get) {
    read.parts = PlanReads(FiguresOf(link.get()));
  }
  StartOneSidedRead(std::move(read), [self = shared_from_this(), link = std::move(link)](
                                         const Status& status) { self->ReadEnded(link, status); });
}

void Receiver::ReadEnded(const std::shared_ptr<Link>& link, const Status& status) {
  if (gate_->closed()) {
    Release(link, sender_);
    return End(Cancelled());
  }
  // The sender held the bytes when it named the link, so if that is still open, they were held
  // during the copy.
  CopiesEnded();
  if (link->closed() || status.code() == StatusCode::kUnavailable) {
    return FetchChunks(/*late=*/true);
  }
  // This process cannot read them, but the stream can bring them.
  if (status.code() == StatusCode::kResourceExhausted) return FetchChunks(/*late=*/false);
  Release(link, sender_);
  if (status.ok()) options_.node->CountRendezvous(target_.size);
  End(status);
}

ChunkPlan Receiver::ChunksOverStream() const {
  if (options_.chunks.has_value()) return *options_.chunks;
  const std::shared_ptr<Link> stream = options_.node->LinkToTell(sender_);
  return PlanChunks(FiguresOf(stream.get()));
}

Figures Receiver::FiguresOf(const Link* link) const {
  const std::string fabric = link == nullptr ? fabric::kTcp : link->fabric();
  const Selector* const selector = options_.node->selector();
  if (selector == nullptr) return Assumed(fabric);
  return selector->FiguresOf(fabric, link == nullptr ? 0 : link->far_us());
}

void Receiver::FetchChunks(bool late) {
  const ChunkPlan chunks = ChunksOverStream();
  TransferChunks(
      target_.size, chunks.bytes, chunks.in_flight,
      [self = shared_from_this(), late](uint64_t offset, uint64_t length,
                                        std::function<void(Status)> done) {
        self->StartChunk(offset, length, late, std::move(done));
      },
      [self = shared_from_this(), late](const Status& status) { self->ChunksEnded(late, status); });
}

void Receiver::StartChunk(uint64_t offset, uint64_t length, bool late,
                          std::function<void(Status)> done) {
  const uint64_t call = calls_.Begin();
  if (call == 0) return done(Cancelled());
  std::function<void()> cancel = options_.caller->Start(
      {ask_.receiver, ask_.ticket, offset, length}, {target_.into + offset, length, gate_},
      late ? kLateCallMs : 0, [self = shared_from_this(), call, done](Status status) {
        self->calls_.Ended(call);
        done(std::move(status));
      });
  calls_.Started(call, std::move(cancel));
}

void Receiver::ChunksEnded(bool late, const Status& status) {
  Release(nullptr, sender_);
  if (gate_->closed()) return End(Cancelled());
  if (status.ok()) {
    options_.node->CountChunked(target_.size);
    return End(OkStatus());
  }
  // Whatever listens there now: the peer that offered the bytes cannot be reached.
  End(late ? Status(StatusCode::kUnavailable,
                    "the connection ended while the tensor was read: " + status.message())
           : status);
}

void Receiver::GiveUp() {
  const std::optional<NodeId> sender = options_.node->servers().SenderOf(options_.task);
  if (sender.has_value()) return Release(nullptr, *sender);
  // A peer that offered nothing takes it for a question about no tensor.
  options_.caller->Release({ask_.receiver, ask_.ticket, 0, 0}, [] {});
}

void Receiver::Release(const std::shared_ptr<Link>& link, const NodeId& server) {
  const auto post = [this](const std::shared_ptr<Link>& over) {
    if (options_.sender_waits) return over->PostRelease(ask_.ticket);
    return ReleaseBatch::Release(over, ask_.ticket, target_.size);
  };
  if (link != nullptr && post(link)) return;
  const std::shared_ptr<Link> other = options_.node->LinkToTell(server);
  if (other != nullptr && other != link && post(other)) return;
  ReleaseByCall(server, ask_.ticket);
}

void Receiver::ReleaseByCall(const NodeId& server, uint64_t ticket) {
  // `lost` holds the node and not this Receiver, which owns the caller: were it the last to hold
  // it, the caller would be destroyed within a call of its own.
  options_.caller->Release({ask_.receiver, ticket, 0, 0}, [node = options_.node, server, ticket] {
    node->KeepUntold(server, {ticket});
  });
}

void Receiver::Cancel() {
  // In this order: what ends because of the calls must find that no more is to be begun.
  gate_->Close();
  calls_.Cancel();
}

void Receiver::End(Status status) {
  // A call that is answered a second time finds the memory closed.
  gate_->Close();
  // Let go first: whoever waits for the end may free what they refer to.
  target_.keep.reset();
  const std::function<void(Status)> done = std::move(done_);
  done(std::move(status));
}

}  // namespace ar_grpc::protocol
