// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/mpi_introduction.h"

#include <utility>

#include "third_party/ar_grpc/mpi/messages.h"
#include "third_party/ar_grpc/tensorflow/own_call.h"

namespace ar_grpc {
namespace {

Status OfHello(const Status& status, const std::string& target) {
  return OfFirstCall(status, target, "grpc+mpi",
                     "start it with protocol=\"grpc+mpi\", in the same MPI job");
}

}  // namespace

void MpiIntroduction::WhenKnown(std::function<void(StatusOr<int>)> known) {
  std::unique_lock<std::mutex> lock(mu_);
  if (state_ == State::kKnown) {
    const int rank = rank_;
    lock.unlock();
    return known(rank);
  }
  waiting_.push_back(std::move(known));
  const bool first = std::exchange(state_, State::kAsking) != State::kAsking;
  lock.unlock();
  if (first) SayHello();
}

void MpiIntroduction::SayHello() {
  const mpi::Job& job = channel_->job();
  const mpi::Hello hello{job.token, static_cast<uint32_t>(job.rank)};
  MakeOwnCall(*caller_, hello, mpi::Hello::kBytes,
              [self = shared_from_this()](const Status& status, const std::string& answer) {
                if (!status.ok()) return self->OnHello(OfHello(status, self->caller_->target));
                const StatusOr<mpi::Hello> theirs = mpi::DecodeHello(answer);
                if (!theirs.ok()) return self->OnHello(theirs.status());
                const mpi::Job& job = self->channel_->job();
                if (theirs->job != job.token || theirs->rank >= static_cast<uint32_t>(job.size)) {
                  return self->OnHello(Status(StatusCode::kInternal,
                                              "the peer's hello names no rank of this MPI job"));
                }
                self->OnHello(static_cast<int>(theirs->rank));
              });
}

void MpiIntroduction::OnHello(StatusOr<int> rank) {
  std::vector<std::function<void(StatusOr<int>)>> waiting;
  {
    std::lock_guard<std::mutex> lock(mu_);
    waiting.swap(waiting_);
    state_ = rank.ok() ? State::kKnown : State::kUnknown;
    if (rank.ok()) {
      rank_ = *rank;
      watch_ = NewToken();
      // Under the lock: once Close has it, no call may be made.
      if (!closed_) Watch(*rank);
    }
  }
  for (auto& known : waiting) known(rank);
}

void MpiIntroduction::Watch(int rank) {
  const mpi::Job& job = channel_->job();
  MakeOwnCall(*caller_, mpi::Watch{watch_, job.token, static_cast<uint32_t>(job.rank)}, 0,
              [self = shared_from_this(), rank](const Status& status, const std::string&) {
                {
                  std::lock_guard<std::mutex> lock(self->mu_);
                  self->state_ = State::kUnknown;
                  if (self->closed_ || status.ok()) return;
                }
                self->channel_->Lose(rank);
              });
}

void MpiIntroduction::Close() {
  Token watch{};
  {
    std::lock_guard<std::mutex> lock(mu_);
    closed_ = true;
    if (state_ != State::kKnown) return;
    watch = watch_;
  }
  MakeOwnCall(*caller_, mpi::Bye{watch}, 0, [](const Status&, const std::string&) {});
}

}  // namespace ar_grpc
