// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#include "third_party/ar_grpc/tensorflow/aborted_rendezvous.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <vector>

#include "tensorflow/core/framework/local_rendezvous.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/platform/mutex.h"
#include "tensorflow/tsl/platform/refcount.h"

namespace ar_grpc {

void ReleaseAbortedRendezvous() {
  using tensorflow::LocalRendezvous;
  using Kept = tsl::core::RefCountPtr<tensorflow::Rendezvous>;
  std::vector<Kept> unreachable;  // Destroyed without the lock.
  tensorflow::mutex_lock lock(LocalRendezvous::aborted_rendezs_mu_);
  std::vector<Kept>& all = LocalRendezvous::aborted_rendezs_;
  // One that was aborted twice is kept twice.
  std::map<const tensorflow::Rendezvous*, int> times;
  for (const Kept& kept : all) ++times[kept.get()];
  const auto first = std::partition(all.begin(), all.end(), [&times](const Kept& kept) {
    return kept->RefCount() > times[kept.get()] || kept->WeakRefCount() > 0;
  });
  unreachable.assign(std::make_move_iterator(first), std::make_move_iterator(all.end()));
  all.erase(first, all.end());
}

}  // namespace ar_grpc
