// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/verbs/receive.h"

#include <string>
#include <utility>

namespace ar_grpc::verbs {

std::optional<Destination> Receive::Offer(std::shared_ptr<Landing::Block> block,
                                          uint64_t* transfer) {
  *transfer = link_.link->NewTransfer();
  {
    std::lock_guard<std::mutex> lock(mu_);
    transfer_ = *transfer;
    block_ = block;
    note_.reset();
  }
  StatusOr<Destination> destination =
      link_.link->Expect(*transfer, std::move(block),
                         [self = shared_from_this(), transfer = *transfer](StatusOr<uint64_t> n) {
                           self->OnNote(transfer, std::move(n));
                         });
  if (destination.ok()) return std::move(*destination);
  std::lock_guard<std::mutex> lock(mu_);
  block_.reset();
  return std::nullopt;
}

Ask Receive::Begin(uint64_t room) {
  Ask ask;
  ask.link = link_.name;
  if (room == 0) return ask;
  if (auto block = link_.link->landing()->TakeRegistered(room)) {
    ask.destination = Offer(std::move(block), &ask.transfer);
  }
  return ask;
}

void Receive::OnWritten(const Written& written) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    answered_ = written.size;
    if (block_ == nullptr) {
      note_ = Status(StatusCode::kInternal, "the peer says that it wrote, and had nowhere to");
    }
  }
  Look();
}

void Receive::OnHeld(const Held& held) {
  if (!Wanted()) return drop_({link_.name, held.id});
  StatusOr<std::shared_ptr<Landing::Block>> block = link_.link->landing()->Take(held.size);
  Fetch fetch;
  std::optional<Destination> destination;
  if (block.ok()) destination = Offer(std::move(*block), &fetch.transfer);
  if (!destination.has_value() || !Wanted()) {
    // The peer was told nothing of it.
    if (destination.has_value()) link_.link->Release(fetch.transfer);
    drop_({link_.name, held.id});
    return End(block.ok() ? link_.link->status() : block.status());
  }
  fetch.link = link_.name;
  fetch.held = held.id;
  fetch.destination = *destination;
  fetch_(fetch, [self = shared_from_this(), size = held.size](const Status& status) {
    if (!status.ok()) return self->OnFetched(status);
    self->OnWritten({size});
  });
}

bool Receive::Wanted() {
  std::lock_guard<std::mutex> lock(mu_);
  return static_cast<bool>(done_);
}

void Receive::OnFetched(const Status& status) {
  if (status.code() == StatusCode::kUnavailable) link_.link->End(status);
  End(status);
}

void Receive::OnOther(const Status& status) {
  if (status.code() == StatusCode::kUnavailable) link_.link->End(status);
  uint64_t transfer = 0;
  {
    std::lock_guard<std::mutex> lock(mu_);
    done_ = nullptr;
    transfer = transfer_;
    block_.reset();
  }
  if (transfer != 0) link_.link->Forget(transfer);
}

void Receive::Cancel() { End(Status(StatusCode::kCancelled, "the receive was cancelled")); }

void Receive::OnNote(uint64_t transfer, StatusOr<uint64_t> written) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    // The first offer was too small, and its end is none of the second's.
    if (transfer != transfer_) return;
    note_ = std::move(written);
  }
  Look();
}

void Receive::Look() {
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
  uint64_t transfer = 0;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!done_) return;
    done.swap(done_);
    transfer = transfer_;
    block_.reset();
  }
  if (transfer != 0 && !arrived.ok()) link_.link->Forget(transfer);
  done(std::move(arrived));
}

}  // namespace ar_grpc::verbs
