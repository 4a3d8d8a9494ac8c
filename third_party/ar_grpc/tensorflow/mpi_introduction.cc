// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/mpi_introduction.h"

#include <array>
#include <utility>

#include "third_party/ar_grpc/mpi/messages.h"

namespace ar_grpc {
namespace {

// Makes a call whose answer has `size` bytes.
template <typename Message>
void Call(const TensorCaller& caller, const Message& message, uint64_t size,
          std::function<void(Status, std::string_view answer)> done) {
  struct Answer {
    std::string bytes;
    TensorCaller::Chunk chunk;
  };
  auto answer = std::make_shared<Answer>();
  answer->bytes.resize(size);
  answer->chunk.into = reinterpret_cast<uint8_t*>(answer->bytes.data());
  answer->chunk.size = size;
  answer->chunk.gate = std::make_shared<protocol::WriteGate>();
  tensorflow::RecvTensorRequest request;
  Pack(message, request.mutable_transport_options());
  caller.call(nullptr, request, &answer->chunk,
              [answer, done = std::move(done)](const tensorflow::Status& status) {
                done(FromTensorFlow(status), answer->bytes);
              });
}

// A server of another protocol takes the hello for a request of a tensor, and finds no key in it.
Status OfHello(const Status& status, const std::string& target) {
  if (status.code() != StatusCode::kInvalidArgument && status.code() != StatusCode::kInternal &&
      status.code() != StatusCode::kUnimplemented) {
    return status;
  }
  return Status(StatusCode::kFailedPrecondition,
                target + " does not speak grpc+mpi: start it with protocol=\"grpc+mpi\", in the " +
                    "same MPI job (it answered: " + status.message() + ")");
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
  Call(*caller_, hello, mpi::Hello::kBytes,
       [self = shared_from_this()](const Status& status, std::string_view answer) {
         if (!status.ok()) return self->OnHello(OfHello(status, self->caller_->target));
         const StatusOr<mpi::Hello> theirs = mpi::DecodeHello(answer);
         if (!theirs.ok()) return self->OnHello(theirs.status());
         const mpi::Job& job = self->channel_->job();
         if (theirs->job != job.token || theirs->rank >= static_cast<uint32_t>(job.size)) {
           return self->OnHello(
               Status(StatusCode::kInternal, "the peer's hello names no rank of this MPI job"));
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
  Call(*caller_, mpi::Watch{watch_, job.token, static_cast<uint32_t>(job.rank)}, 0,
       [self = shared_from_this(), rank](const Status& status, std::string_view) {
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
  Call(*caller_, mpi::Bye{watch}, 0, [](const Status&, std::string_view) {});
}

}  // namespace ar_grpc
