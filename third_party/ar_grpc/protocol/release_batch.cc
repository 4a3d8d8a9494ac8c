// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/release_batch.h"

#include <algorithm>
#include <utility>

namespace ar_grpc::protocol {
namespace {

thread_local ReleaseBatch* batch_of_thread = nullptr;

}  // namespace

ReleaseBatch::ReleaseBatch() { batch_of_thread = this; }

ReleaseBatch::~ReleaseBatch() {
  batch_of_thread = nullptr;
  Post();
}

bool ReleaseBatch::Release(const std::shared_ptr<Link>& link, uint64_t ticket, uint64_t bytes) {
  if (batch_of_thread == nullptr) return link->PostRelease(ticket);
  return batch_of_thread->Add(link, ticket, bytes);
}

void ReleaseBatch::PostAll() {
  if (batch_of_thread != nullptr) batch_of_thread->Post();
}

bool ReleaseBatch::Add(const std::shared_ptr<Link>& link, uint64_t ticket, uint64_t bytes) {
  if (!link->QueueRelease(ticket)) return false;
  if (std::find(links_.begin(), links_.end(), link) == links_.end()) links_.push_back(link);
  bytes_ += bytes;
  if (bytes_ >= kMostBytes) Post();
  return true;
}

void ReleaseBatch::Post() {
  bytes_ = 0;
  // Moved out first: the loop may drop the last reference to a link, and what its end runs may add
  // to this batch.
  const std::vector<std::shared_ptr<Link>> links = std::exchange(links_, {});
  // A link that has ended gives its releases to whoever takes it off the node.
  for (const std::shared_ptr<Link>& link : links) (void)link->FlushMessages().ok();
}

}  // namespace ar_grpc::protocol
