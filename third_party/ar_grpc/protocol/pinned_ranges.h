// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_PINNED_RANGES_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_PINNED_RANGES_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/base/work_queue.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/memory/extent_allocator.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::protocol {

// A segment of which pages come and go while fabrics pin some of them.
struct PinnablePages {
  using Range = memory::ExtentAllocator::Range;

  std::shared_ptr<memory::Segment> segment;
  // Whoever hands out the segment's memory, and lives as long; nullptr: nobody does.
  memory::ExtentAllocator* extents = nullptr;
  // Held while a range is registered, and while one is deregistered and discarded: a hole that is
  // punched under a registration would let a device read pages that are nobody's any more.
  std::mutex changing;
};

// One segment's registrations with one context that pins pages.
//
// Memory is registered in *slabs*, aligned parts of the segment, and a slab only once some of it
// was handed out. A read cannot cross two registrations, so what lies across slabs has one of all
// of them: a *run*, which may overlap others. What is wanted is registered in the queue's thread,
// one run after another; whoever wants it goes on without.
//
// A range can be discarded once no run reaches into it. A run is let go, when memory in it is to be
// discarded, if no offer holds it, nobody has found it for kIdle, and more than half of it is free
// now and was so at each such look within kIdle. So at least half of the bytes that stay registered
// are in use. What little of a run was in use goes through the stream at its next send, and is
// registered again. The table owns each registration until then, so that none is deregistered in
// the thread that lets an offer go.
//
// A forked child must not call it: any thread of the parent may hold its lock. Thread-safe.
class PinnedRanges : public std::enable_shared_from_this<PinnedRanges> {
 public:
  using Clock = std::chrono::steady_clock;
  using Range = PinnablePages::Range;

  static constexpr uint64_t kSlab = uint64_t{16} << 20;
  // What each step reads stays registered between steps. It is longer than the time between two
  // looks of the arena's, ten seconds: what is free for a moment at one was in use at the other.
  static constexpr Clock::duration kIdle = std::chrono::seconds(15);
  // A refused size, and larger ones, are tried again after this time: the limit that was too small
  // may have been raised, but pinning in vain costs too much to do so for each tensor.
  static constexpr std::chrono::seconds kRefusalKept{60};

  // Where registering, deregistering and discarding of pinned memory run: 5 ms for each MB have
  // been seen.
  static WorkQueue& Queue();

  PinnedRanges(fabric::Context* context, std::shared_ptr<PinnablePages> pages)
      : context_(context), pages_(std::move(pages)) {}

  // The registration with all of `range`, which is not empty, to be held as long as a peer may use
  // its key. Else it is wanted from now on, before all that Want asked for, and the status is
  // kUnavailable, or why it was refused.
  StatusOr<std::shared_ptr<fabric::Registration>> Find(const Range& range);
  // Has `range` registered soon.
  void Want(const Range& range);
  // Has all registered soon that is in use now.
  void WantWhatIsInUse();
  // Deregisters what reaches into `range` and is idle. false: some is not, and stays registered.
  // Requires pages->changing.
  bool LetGo(const Range& range, Clock::time_point now);

 private:
  struct Run {
    std::shared_ptr<fabric::Registration> registration;
    Clock::time_point last_used;  // found, or seen to be in use
  };
  // By offset. No run is within another, so they end in the same order.
  using Runs = std::map<uint64_t, Run>;
  using Registrations = std::vector<std::shared_ptr<fabric::Registration>>;
  using Wanted = std::set<std::pair<uint64_t, uint64_t>>;  // offset, end

  Range SlabsOf(const Range& range) const;
  void Work();
  void Register(const Range& run);

  // These require mu_.
  bool UsedLatelyLocked(Run* run, Clock::time_point now) const;
  Runs::iterator FindLocked(const Range& range);
  bool RefusedLocked(uint64_t size, Clock::time_point now) const;
  void WorkSoonLocked();
  bool TakeNextLocked(Range* run);
  void AddLocked(std::shared_ptr<fabric::Registration> registration, Registrations* ended);
  // Lets go the runs that were used least lately, where too many overlap; not the one at `but`.
  void LetOverlapsGoLocked(uint64_t but, Registrations* ended);
  // Moves those of left_ that nobody holds any more to `ended`.
  void SweepLocked(Registrations* ended);

  fabric::Context* const context_;
  const std::shared_ptr<PinnablePages> pages_;
  std::mutex mu_;
  // The rest is guarded by mu_. What ends is destroyed without it.
  Runs runs_;
  Registrations left_;  // not found any more, but still held or in use
  Wanted urgent_;
  Wanted wanted_;
  bool working_ = false;
  bool logged_ = false;
  Status refused_;
  uint64_t refused_size_ = 0;
  Clock::time_point refused_until_{};
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_PINNED_RANGES_H_
