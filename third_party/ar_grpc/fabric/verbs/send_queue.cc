// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/send_queue.h"

#include <algorithm>
#include <utility>

namespace ar_grpc::fabric::verbs {

std::optional<SendQueue::Request> SendQueue::Next() const {
  if (waiting_.empty() || posted_.size() >= most_requests_) return std::nullopt;
  const std::shared_ptr<Operation>& operation = waiting_.front();
  const uint64_t size = std::min(operation->size - operation->posted, most_bytes_);
  return Request{last_id_ + 1, operation->posted, size, operation};
}

void SendQueue::Posted(const Request& request) {
  last_id_ = request.id;
  Operation& operation = *request.operation;
  operation.posted += request.size;
  ++operation.outstanding;
  if (operation.posted == operation.size) waiting_.pop_front();
  posted_.push_back(request);
}

std::optional<SendQueue::Request> SendQueue::TakeOut(uint64_t id) {
  if (posted_.empty() || posted_.front().id != id) return std::nullopt;
  Request request = std::move(posted_.front());
  posted_.pop_front();
  return request;
}

void SendQueue::End(const Request& request, const Status& status, Operations* ended) {
  Operation& operation = *request.operation;
  if (operation.status.ok()) operation.status = status;
  --operation.outstanding;
  const bool whole = operation.posted == operation.size;
  // One that is not whole ends here only after Stop, which leaves to us what is outstanding.
  if (operation.outstanding > 0 || (!whole && stopped_.ok())) return;
  if (!whole && operation.status.ok()) operation.status = stopped_;
  ended->push_back(request.operation);
}

void SendQueue::Stop(const Status& why, Operations* ended) {
  stopped_ = why;
  for (std::shared_ptr<Operation>& operation : waiting_) {
    if (operation->outstanding > 0) continue;
    if (operation->status.ok()) operation->status = why;
    ended->push_back(std::move(operation));
  }
  waiting_.clear();
}

void SendQueue::Abandon(Operations* ended) {
  for (const Request& request : posted_) End(request, stopped_, ended);
  posted_.clear();
}

}  // namespace ar_grpc::fabric::verbs
