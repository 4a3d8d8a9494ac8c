// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/verbs/receive.h"

#include <string>
#include <utility>

#include "third_party/ar_grpc/base/reactor.h"

namespace ar_grpc::verbs {
namespace {

// The note is on its way when the sender answers. One that does not come in this time comes no
// more, though this end's device may not know: the sender has died in between.
constexpr int kNoteMs = 10000;

}  // namespace

StatusOr<Destination> Receive::Offer(uint64_t transfer, std::shared_ptr<LandingPool::Block> block) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    transfer_ = transfer;
    block_ = block;
    note_.reset();
  }
  StatusOr<Destination> destination = link_.link->Expect(
      transfer, std::move(block), [self = shared_from_this(), transfer](StatusOr<uint64_t> note) {
        self->OnNote(transfer, std::move(note));
      });
  if (destination.ok()) return destination;
  std::shared_ptr<LandingPool::Block> refused;  // ends without the lock
  std::lock_guard<std::mutex> lock(mu_);
  refused.swap(block_);
  return destination;
}

Ask Receive::Begin(uint64_t room) {
  Ask ask;
  ask.link = link_.name;
  ask.transfer = link_.link->NewTransfer();
  {
    std::lock_guard<std::mutex> lock(mu_);
    asked_ = ask.transfer;
  }
  if (room == 0) return ask;
  if (auto block = link_.link->landing()->TakeRegistered(room)) {
    StatusOr<Destination> destination = Offer(ask.transfer, std::move(block));
    if (destination.ok()) ask.destination = std::move(*destination);
  }
  return ask;
}

void Receive::OnWritten(const Written& written) {
  bool waits = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    answered_ = written.size;
    if (block_ == nullptr) {
      note_ = Status(StatusCode::kInternal, "the peer says that it wrote, and had nowhere to");
    }
    waits = done_ && !note_.has_value();
  }
  if (!waits) return EndIfComplete();
  Reactor::Get().RunAfter(kNoteMs, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self || !self->Wanted()) return;
    self->link_.link->End(
        Status(StatusCode::kUnavailable, "the peer has written, but no note came"));
  });
}

void Receive::OnHeld(const Held& held) {
  // Of what was offered first the sender has said that it does not write there, or will say so.
  GiveUp();
  if (!Wanted()) return Drop(asked_);
  StatusOr<std::shared_ptr<LandingPool::Block>> block = link_.link->landing()->Take(held.size);
  Fetch fetch;
  fetch.link = link_.name;
  fetch.asked = asked_;
  fetch.transfer = link_.link->NewTransfer();
  StatusOr<Destination> destination = block.status();
  if (block.ok()) destination = Offer(fetch.transfer, std::move(*block));
  if (!destination.ok()) {
    Drop(asked_);
    return End(destination.status());
  }
  if (!Wanted()) {
    link_.link->Release(fetch.transfer);  // the peer was told nothing of it
    return Drop(asked_);
  }
  fetch.destination = std::move(*destination);
  fetch_(fetch, [self = shared_from_this(), fetch, size = held.size](const Status& status) {
    if (status.ok()) return self->OnWritten({size});
    self->Drop(fetch.transfer, status);
    self->End(status);
  });
}

void Receive::OnOther(const Status& status) {
  Done unwanted;  // ends without the lock
  {
    std::lock_guard<std::mutex> lock(mu_);
    unwanted.swap(done_);
  }
  GiveUp();
  // The call may have ended here alone, and its request be answered yet.
  if (!status.ok() && link_.link->status().ok()) Drop(asked_, status);
}

void Receive::Cancel() { End(Status(StatusCode::kCancelled, "the receive was cancelled")); }

bool Receive::Wanted() {
  std::lock_guard<std::mutex> lock(mu_);
  return static_cast<bool>(done_);
}

void Receive::Drop(uint64_t offered, const Status& why) {
  const int tries = why.code() == StatusCode::kUnavailable ? 1 : kDropTries;
  MakeDrop(drop_, link_.link, {link_.name, asked_, offered}, tries);
}

void Receive::MakeDrop(const DropCall& call, const std::shared_ptr<Link>& link,
                       const verbs::Drop& drop, int tries) {
  call(drop, [call, link, drop, tries](const Status& status) {
    if (status.ok() || !link->status().ok()) return;
    if (tries == 1) return link->End(status);
    // Other transfers of the link need nothing of what this call goes over.
    Reactor::Get().RunAfter(kDropAgainMs,
                            [call, link, drop, tries] { MakeDrop(call, link, drop, tries - 1); });
  });
}

void Receive::GiveUp() {
  uint64_t transfer = 0;
  std::shared_ptr<LandingPool::Block> block;  // ends without the lock
  {
    std::lock_guard<std::mutex> lock(mu_);
    transfer = std::exchange(transfer_, 0);
    block.swap(block_);
  }
  if (transfer != 0) link_.link->Forget(transfer);
}

void Receive::OnNote(uint64_t transfer, StatusOr<uint64_t> written) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    // That of the first offer, which was too small, is none of the second's.
    if (transfer != transfer_) return;
    note_ = std::move(written);
  }
  EndIfComplete();
}

void Receive::EndIfComplete() {
  Arrived arrived;
  Status status;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!done_ || !note_.has_value() || !answered_.has_value()) return;
    status = note_->status();
    if (status.ok() && **note_ != *answered_) {
      status = Status(StatusCode::kInternal,
                      "the peer's note and its answer differ: " + std::to_string(**note_) +
                          " and " + std::to_string(*answered_) + " bytes");
    }
    arrived = {block_, *answered_};
  }
  if (!status.ok()) return End(std::move(status));
  End(std::move(arrived));
}

void Receive::End(StatusOr<Arrived> arrived) {
  Done done;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!done_) return;
    done.swap(done_);
  }
  GiveUp();
  done(std::move(arrived));
}

}  // namespace ar_grpc::verbs
