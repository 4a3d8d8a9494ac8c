// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/remote_memory.h"

#include <string>
#include <utility>

namespace ar_grpc::fabric {

Status CheckRange(uint64_t offset, uint64_t size, uint64_t limit, const char* whose) {
  if (offset <= limit && size <= limit - offset) return Status();
  return Status(StatusCode::kInvalidArgument, std::to_string(size) + " bytes at " +
                                                  std::to_string(offset) + " are not within the " +
                                                  std::to_string(limit) + " of " + whose);
}

void Operations::Leave() {
  if (under_way_.fetch_sub(1, std::memory_order_seq_cst) != 1) return;
  if (has_waiting_.load(std::memory_order_seq_cst)) RunWaiting();
}

void Operations::WhenIdle(std::function<void()> idle) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    waiting_.push_back(std::move(idle));
    has_waiting_.store(true, std::memory_order_seq_cst);
  }
  if (under_way_.load(std::memory_order_seq_cst) == 0) RunWaiting();
}

void Operations::RunWaiting() {
  std::vector<std::function<void()>> idle;
  {
    std::lock_guard<std::mutex> lock(mu_);
    // Counted after all of these were asked for; whoever is under way comes here when it leaves.
    if (under_way_.load(std::memory_order_seq_cst) != 0) return;
    idle.swap(waiting_);
    has_waiting_.store(false, std::memory_order_seq_cst);
  }
  for (const std::function<void()>& one : idle) one();
}

}  // namespace ar_grpc::fabric
