// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/mpi/tags.h"

#include <algorithm>
#include <string>

namespace ar_grpc::mpi {

StatusOr<int> Tags::Draw(int rank) {
  std::lock_guard<std::mutex> lock(mu_);
  OfRank& of = ranks_[rank];
  const uint64_t taken = of.drawn.size() + of.quarantine.size();
  if (taken > static_cast<uint64_t>(largest_)) {
    return Status(StatusCode::kResourceExhausted,
                  "all " + std::to_string(static_cast<int64_t>(largest_) + 1) +
                      " tags of MPI are in use for messages from rank " + std::to_string(rank));
  }
  while (true) {
    const int tag = of.next;
    of.next = tag < largest_ ? tag + 1 : 0;
    if (of.unfit.count(tag) == 0 && of.drawn.insert(tag).second) return tag;
  }
}

bool Tags::Drawn(int rank, int tag) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto of = ranks_.find(rank);
  return of != ranks_.end() && of->second.drawn.count(tag) > 0;
}

void Tags::GiveBack(int rank, int tag, bool used_up) {
  std::lock_guard<std::mutex> lock(mu_);
  OfRank& of = ranks_[rank];
  if (of.drawn.erase(tag) == 0 || used_up) return;
  of.quarantine.push_back(tag);
  of.unfit.insert(tag);
  const uint64_t most = std::min(kQuarantine, (static_cast<uint64_t>(largest_) + 1) / 2);
  if (of.quarantine.size() > most) {
    of.unfit.erase(of.quarantine.front());
    of.quarantine.pop_front();
  }
}

}  // namespace ar_grpc::mpi
