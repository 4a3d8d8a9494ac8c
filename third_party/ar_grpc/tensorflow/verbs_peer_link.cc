// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/verbs_peer_link.h"

#include <utility>

#include "third_party/ar_grpc/tensorflow/run_later.h"
#include "third_party/ar_grpc/verbs/messages.h"

namespace ar_grpc {
namespace {

Status OfIntroduction(const Status& status, const std::string& target) {
  return OfFirstCall(status, target, "grpc+verbs", "start it with protocol=\"grpc+verbs\"");
}

}  // namespace

void VerbsPeerLink::WhenKnown(Known known) {
  std::optional<verbs::NamedLink> link;
  std::optional<verbs::NamedLink> gone;  // ends without the lock
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (link_.has_value() && link_->link->status().ok()) {
      link = link_;
    } else {
      gone.swap(link_);
      waiting_.push_back(std::move(known));
      first = waiting_.size() == 1;
    }
  }
  if (link.has_value()) return known(*link);
  if (first) Make();
}

void VerbsPeerLink::Make() {
  const auto self = shared_from_this();
  verbs::MakeLink(
      context_,
      [self](const verbs::Introduce& introduce,
             std::function<void(StatusOr<verbs::Introduced>)> answered) {
        self->Call(introduce, verbs::Introduced::kBytes,
                   [self, answered](const Status& status, const std::string& bytes) {
                     if (!status.ok()) return answered(OfIntroduction(status, self->target()));
                     answered(verbs::DecodeIntroduced(bytes));
                   });
      },
      [weak = weak_from_this()] {
        // Not on the reactor.
        RunLater([weak] {
          if (const auto self = weak.lock()) self->OnEnded();
        });
      },
      [self](const StatusOr<verbs::NamedLink>& made) { self->OnMade(made); });
}

void VerbsPeerLink::OnMade(const StatusOr<verbs::NamedLink>& made) {
  std::vector<Known> waiting;
  bool closed = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    waiting.swap(waiting_);
    closed = closed_;
    // One that has ended already has called OnEnded.
    if (made.ok() && !closed && made->link->status().ok()) link_ = *made;
  }
  if (made.ok() && closed) made->link->End(Closed());
  for (const Known& known : waiting) known(made);
}

void VerbsPeerLink::OnEnded() {
  std::optional<verbs::NamedLink> gone;  // ends without the lock
  std::lock_guard<std::mutex> lock(mu_);
  if (link_.has_value() && !link_->link->status().ok()) gone.swap(link_);
}

void VerbsPeerLink::Close() {
  std::optional<verbs::NamedLink> link;
  {
    std::lock_guard<std::mutex> lock(mu_);
    closed_ = true;
    link.swap(link_);
  }
  if (link.has_value()) link->link->End(Closed());
}

uint64_t VerbsPeerLink::RoomFor(const std::string& key) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = sizes_.find(key);
  return found == sizes_.end() ? 0 : found->second;
}

void VerbsPeerLink::Remember(const std::string& key, uint64_t size) {
  std::lock_guard<std::mutex> lock(mu_);
  if (sizes_.size() >= kMostSizes) sizes_.clear();
  sizes_[key] = size;
}

}  // namespace ar_grpc
