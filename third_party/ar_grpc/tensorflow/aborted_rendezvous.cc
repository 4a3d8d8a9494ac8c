// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#include "third_party/ar_grpc/tensorflow/aborted_rendezvous.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>
#include <vector>

#include "tensorflow/core/framework/local_rendezvous.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/platform/mutex.h"
#include "tensorflow/tsl/platform/refcount.h"

namespace ar_grpc {
namespace {

using Clock = std::chrono::steady_clock;
using Kept = tsl::core::RefCountPtr<tensorflow::Rendezvous>;
using tensorflow::LocalRendezvous;
using tensorflow::Rendezvous;

// A cancelled Recv is called back with a plain pointer, perhaps after the step that owned the
// rendezvous has ended: no reference tells of it, so those that are let go stay for this long yet.
constexpr auto kGrace = std::chrono::milliseconds(500);

struct Leaving {
  Clock::time_point since;
  Kept rendezvous;
};

// Takes those that nobody can find any more from what LocalRendezvous keeps.
std::vector<Kept> TakeUnreachable() {
  tensorflow::mutex_lock lock(LocalRendezvous::aborted_rendezs_mu_);
  std::vector<Kept>& all = LocalRendezvous::aborted_rendezs_;
  // One that was aborted twice is kept twice.
  std::vector<const Rendezvous*> times(all.size());
  std::transform(all.begin(), all.end(), times.begin(),
                 [](const Kept& kept) { return kept.get(); });
  std::sort(times.begin(), times.end());
  const auto first = std::partition(all.begin(), all.end(), [&times](const Kept& kept) {
    const auto same = std::equal_range(times.begin(), times.end(), kept.get());
    return kept->RefCount() > same.second - same.first || kept->WeakRefCount() > 0;
  });
  std::vector<Kept> taken(std::make_move_iterator(first), std::make_move_iterator(all.end()));
  all.erase(first, all.end());
  return taken;
}

}  // namespace

void ReleaseAbortedRendezvous() {
  static tensorflow::mutex mu(tensorflow::LINKER_INITIALIZED);
  static auto* const leaving = new std::vector<Leaving>;
  std::vector<Kept> taken = TakeUnreachable();
  std::vector<Leaving> gone;  // Destroyed without the lock.
  tensorflow::mutex_lock lock(mu);
  const Clock::time_point now = Clock::now();
  for (Kept& each : taken) leaving->push_back({now, std::move(each)});
  const auto stay =
      std::partition_point(leaving->begin(), leaving->end(),
                           [now](const Leaving& each) { return now - each.since >= kGrace; });
  gone.assign(std::make_move_iterator(leaving->begin()), std::make_move_iterator(stay));
  leaving->erase(leaving->begin(), stay);
}

}  // namespace ar_grpc
