// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/verbs/sender.h"

#include <string>
#include <utility>
#include <vector>

namespace ar_grpc::verbs {
namespace {

Status NoLink() {
  return Status(StatusCode::kUnavailable, "the RDMA connection of this transfer has ended");
}

}  // namespace

Sender::Sender(fabric::Context* context)
    : acceptor_(std::make_shared<Acceptor>(context, [state = state_](const Token& link) {
        std::vector<Source> gone;  // end without the lock
        std::lock_guard<std::mutex> lock(state->mu);
        const auto first = state->held.lower_bound({link, 0});
        auto end = first;
        for (; end != state->held.end() && end->first.first == link; ++end) {
          gone.push_back(std::move(end->second));
        }
        state->held.erase(first, end);
      })) {}

Sender::~Sender() { acceptor_->Close(); }

void Sender::Answer(const Ask& ask, Source source, Answered answered) {
  const std::shared_ptr<Link> link = acceptor_->Find(ask.link);
  if (!link) return answered(NoLink());
  if (ask.destination.has_value() && source.size <= ask.destination->size) {
    return link->Write(ask.transfer, *ask.destination, source.data, source.size,
                       std::move(source.keep),
                       [answered, size = source.size](const Status& status) {
                         if (!status.ok()) return answered(status);
                         answered(std::variant<Written, Held>(Written{size}));
                       });
  }
  if (ask.destination.has_value()) link->Refuse(ask.transfer);
  const StatusOr<Held> held = Hold(ask.link, std::move(source));
  if (!held.ok()) return answered(held.status());
  answered(std::variant<Written, Held>(*held));
}

StatusOr<Held> Sender::Hold(const Token& link, Source source) {
  Held held;
  held.size = source.size;
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    held.id = ++state_->last;
    state_->held.emplace(Name{link, held.id}, std::move(source));
  }
  // Its end takes what is held from there; one that came before found nothing.
  if (acceptor_->Find(link) == nullptr) {
    Forget({link, held.id});
    return NoLink();
  }
  return held;
}

void Sender::Refuse(const Ask& ask) {
  if (!ask.destination.has_value()) return;
  if (const std::shared_ptr<Link> link = acceptor_->Find(ask.link)) link->Refuse(ask.transfer);
}

void Sender::Serve(const Fetch& fetch, std::function<void(Status)> done) {
  const std::shared_ptr<Link> link = acceptor_->Find(fetch.link);
  if (!link) return done(NoLink());
  Source source;
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    const auto found = state_->held.find({fetch.link, fetch.held});
    if (found != state_->held.end()) {
      source = std::move(found->second);
      state_->held.erase(found);
    }
  }
  if (source.keep == nullptr) {
    link->Refuse(fetch.transfer);
    return done(Status(StatusCode::kNotFound, "the tensor is not held any more"));
  }
  const void* const data = source.data;
  const uint64_t size = source.size;
  link->Write(fetch.transfer, fetch.destination, data, size, std::move(source.keep),
              std::move(done));
}

void Sender::Forget(const Drop& drop) {
  Source gone;  // ends without the lock
  std::lock_guard<std::mutex> lock(state_->mu);
  const auto found = state_->held.find({drop.link, drop.held});
  if (found == state_->held.end()) return;
  gone = std::move(found->second);
  state_->held.erase(found);
}

size_t Sender::held() const {
  std::lock_guard<std::mutex> lock(state_->mu);
  return state_->held.size();
}

}  // namespace ar_grpc::verbs
