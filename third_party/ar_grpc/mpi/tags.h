// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_TAGS_H_
#define THIRD_PARTY_AR_GRPC_MPI_TAGS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc::mpi {

// The tags of messages that this process receives: no two that a rank may still send under are the
// same. Thread-safe.
class Tags {
 public:
  // `largest` is MPI_TAG_UB.
  explicit Tags(int largest) : largest_(largest) {}

  // A tag for one transfer from `rank`. It goes round through all of them, so that one that a late
  // message may have comes again as late as can be. kResourceExhausted: all are in use.
  StatusOr<int> Draw(int rank);
  bool Drawn(int rank, int tag);
  // `used_up`: all that the rank sends under it has come. Else it may come yet, and the tag is not
  // drawn again before kQuarantine others were given back so (or half of all, where that is less).
  void GiveBack(int rank, int tag, bool used_up);

  static constexpr uint64_t kQuarantine = 4096;

 private:
  struct OfRank {
    int next = 0;
    std::unordered_set<int> drawn;
    std::unordered_set<int> unfit;  // those of quarantine
    std::deque<int> quarantine;
  };

  const int largest_;
  std::mutex mu_;
  std::unordered_map<int, OfRank> ranks_;
};

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_TAGS_H_
