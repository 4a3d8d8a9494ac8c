// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/send_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace ar_grpc::fabric::verbs {
namespace {

bool IsRead(const SendQueue::Request& request) {
  return request.operation && request.operation->opcode == abi::kRdmaRead;
}

}  // namespace

std::optional<SendQueue::Request> SendQueue::Next() const {
  if (waiting_.empty() || parts_ >= most_parts_) return std::nullopt;
  const std::shared_ptr<Operation>& operation = waiting_.front();
  const uint64_t size = std::min(operation->size - operation->posted, most_bytes_);
  return Request{last_id_ + 1, operation->posted, size, operation, 0, true};
}

SendQueue::Request SendQueue::NextFrame(uint32_t buffer, uint64_t size, bool signaled) const {
  return Request{last_id_ + 1, 0, size, nullptr, buffer, signaled};
}

void SendQueue::Posted(const Request& request) {
  last_id_ = request.id;
  posted_.push_back(request);
  if (!request.operation) return;
  ++parts_;
  Operation& operation = *request.operation;
  operation.posted += request.size;
  ++operation.outstanding;
  if (operation.posted == operation.size) waiting_.pop_front();
}

std::vector<SendQueue::Request> SendQueue::TakeOut(uint64_t id) {
  const auto answered = std::find_if(posted_.begin(), posted_.end(),
                                     [id](const Request& one) { return one.id == id; });
  if (answered == posted_.end()) return {};
  const bool passes = !IsRead(*answered);
  const bool in_order = std::none_of(posted_.begin(), answered, [passes](const Request& one) {
    return one.signaled && !(passes && IsRead(one));
  });
  if (!in_order) return {};
  std::vector<Request> taken;
  std::deque<Request> left;
  for (auto one = posted_.begin(); one != answered; ++one) {
    if (one->signaled) {
      left.push_back(std::move(*one));
    } else {
      taken.push_back(std::move(*one));
    }
  }
  taken.push_back(std::move(*answered));
  posted_.erase(posted_.begin(), answered + 1);
  posted_.insert(posted_.begin(), std::make_move_iterator(left.begin()),
                 std::make_move_iterator(left.end()));
  if (taken.back().operation) --parts_;
  return taken;
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
  for (const Request& request : posted_) {
    if (request.operation) End(request, stopped_, ended);
  }
  posted_.clear();
  parts_ = 0;
}

}  // namespace ar_grpc::fabric::verbs
