// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/pinned_ranges.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/log.h"

namespace ar_grpc::protocol {
namespace {

// Runs may overlap until they have this many times the bytes that lie under them.
constexpr uint64_t kMostOverlap = 2;

uint64_t EndOf(const fabric::Registration& registration) {
  return registration.offset() + registration.size();
}

bool Overlap(const fabric::Registration& registration, const PinnablePages::Range& range) {
  return registration.offset() < range.end() && range.offset < EndOf(registration);
}

// Nobody but the table refers to it, and nobody can begin to: only the table gives it out.
bool Unheld(const std::shared_ptr<fabric::Registration>& registration) {
  return registration.use_count() == 1;
}

}  // namespace

WorkQueue& PinnedRanges::Queue() {
  // Never destroyed: tensors come and go until the very end.
  static auto* const queue = new WorkQueue("ar-grpc pin", /*most_threads=*/1);
  return *queue;
}

PinnedRanges::Range PinnedRanges::SlabsOf(const Range& range) const {
  const uint64_t begin = range.offset / kSlab * kSlab;
  const uint64_t end = (range.end() + kSlab - 1) / kSlab * kSlab;
  return {begin, std::min<uint64_t>(end, pages_->segment->size()) - begin};
}

PinnedRanges::Runs::iterator PinnedRanges::FindLocked(const Range& range) {
  // Of those that begin early enough, the last one ends last.
  auto run = runs_.upper_bound(range.offset);
  if (run == runs_.begin()) return runs_.end();
  --run;
  if (range.end() > EndOf(*run->second.registration)) return runs_.end();
  if (run->second.registration->usable()) return run;
  // Another takes its place with the device that the context has now.
  left_.push_back(std::move(run->second.registration));
  runs_.erase(run);
  return runs_.end();
}

bool PinnedRanges::RefusedLocked(uint64_t size, Clock::time_point now) const {
  return now < refused_until_ && size >= refused_size_;
}

StatusOr<std::shared_ptr<fabric::Registration>> PinnedRanges::Find(const Range& range) {
  const Clock::time_point now = Clock::now();
  std::lock_guard<std::mutex> lock(mu_);
  if (const auto run = FindLocked(range); run != runs_.end()) {
    run->second.last_used = now;
    return run->second.registration;
  }
  const Range slabs = SlabsOf(range);
  if (RefusedLocked(slabs.length, now)) return refused_;
  urgent_.emplace(slabs.offset, slabs.end());
  WorkSoonLocked();
  return Status(StatusCode::kUnavailable, "the memory is not registered yet");
}

void PinnedRanges::Want(const Range& range) {
  const Range slabs = SlabsOf(range);
  std::lock_guard<std::mutex> lock(mu_);
  if (FindLocked(slabs) != runs_.end()) return;
  wanted_.emplace(slabs.offset, slabs.end());
  WorkSoonLocked();
}

void PinnedRanges::WantWhatIsInUse() {
  Queue().Run([weak = weak_from_this()] {
    const std::shared_ptr<PinnedRanges> self = weak.lock();
    if (self == nullptr || self->pages_->extents == nullptr) return;
    for (const Range& range : self->pages_->extents->InUse()) self->Want(range);
  });
}

bool PinnedRanges::LetGo(const Range& range, Clock::time_point now) {
  Registrations ended;  // and deregistered when this returns
  std::lock_guard<std::mutex> lock(mu_);
  SweepLocked(&ended);
  for (const auto& registration : left_) {
    if (Overlap(*registration, range)) return false;
  }
  // They end in the order in which they begin: those that overlap are neighbours.
  auto first = runs_.lower_bound(range.end());
  const auto last = first;
  while (first != runs_.begin() && Overlap(*std::prev(first)->second.registration, range)) --first;
  bool all = true;
  for (auto run = first; run != last;) {
    if (UsedLatelyLocked(&run->second, now)) {
      all = false;
      ++run;
      continue;
    }
    const bool over = run->second.registration->Retire();
    (over ? ended : left_).push_back(std::move(run->second.registration));
    all = all && over;
    run = runs_.erase(run);
  }
  return all;
}

bool PinnedRanges::UsedLatelyLocked(Run* run, Clock::time_point now) const {
  if (!Unheld(run->registration) || now - run->last_used < kIdle) return true;
  if (pages_->extents == nullptr) return false;
  const uint64_t size = run->registration->size();
  if (2 * pages_->extents->InUse({run->registration->offset(), size}) < size) return false;
  run->last_used = now;
  return true;
}

void PinnedRanges::SweepLocked(Registrations* ended) {
  const auto over = std::partition(left_.begin(), left_.end(), [](const auto& registration) {
    return !Unheld(registration) || !registration->Retire();
  });
  std::move(over, left_.end(), std::back_inserter(*ended));
  left_.erase(over, left_.end());
}

void PinnedRanges::WorkSoonLocked() {
  if (std::exchange(working_, true)) return;
  Queue().Run([weak = weak_from_this()] {
    if (const std::shared_ptr<PinnedRanges> self = weak.lock()) self->Work();
  });
}

bool PinnedRanges::TakeNextLocked(Range* run) {
  for (Wanted* const from : {&urgent_, &wanted_}) {
    while (!from->empty()) {
      const auto [offset, end] = *from->begin();
      from->erase(from->begin());
      *run = {offset, end - offset};
      if (FindLocked(*run) == runs_.end() && !RefusedLocked(run->length, Clock::now())) return true;
    }
  }
  return false;
}

void PinnedRanges::Work() {
  Registrations ended;
  Range run;
  bool found = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    SweepLocked(&ended);
    found = TakeNextLocked(&run);
    if (!found) working_ = false;
  }
  ended.clear();
  if (!found) return;
  Register(run);
  // One at a time, so that what is to be discarded has its turn.
  std::lock_guard<std::mutex> lock(mu_);
  working_ = false;
  WorkSoonLocked();
}

void PinnedRanges::Register(const Range& run) {
  std::lock_guard<std::mutex> changing(pages_->changing);
  StatusOr<std::shared_ptr<fabric::Registration>> made =
      context_->Register(pages_->segment, run.offset, run.length, fabric::Access::kRead);
  // Pinning brings the pages in.
  if (made.ok() && pages_->extents != nullptr) pages_->extents->Warm(run);
  Registrations ended;
  bool logs = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (made.ok()) {
      AddLocked(std::move(*made), &ended);
    } else {
      const Clock::time_point now = Clock::now();
      refused_size_ = now < refused_until_ ? std::min(refused_size_, run.length) : run.length;
      refused_until_ = now + kRefusalKept;
      refused_ = made.status();
      logs = !std::exchange(logged_, true);
    }
  }
  if (!logs) return;
  Log(Severity::kWarning, std::string("peers cannot read all tensors over ") + context_->name() +
                              ", so some go through the stream: " + made.status().message());
}

void PinnedRanges::AddLocked(std::shared_ptr<fabric::Registration> registration,
                             Registrations* ended) {
  const uint64_t begin = registration->offset();
  const uint64_t end = EndOf(*registration);
  auto run = runs_.lower_bound(begin);
  while (run != runs_.end() && EndOf(*run->second.registration) <= end) {
    left_.push_back(std::move(run->second.registration));
    run = runs_.erase(run);
  }
  runs_[begin] = {std::move(registration), Clock::now()};
  LetOverlapsGoLocked(begin, ended);
  SweepLocked(ended);
}

void PinnedRanges::LetOverlapsGoLocked(uint64_t but, Registrations* ended) {
  for (;;) {
    uint64_t registered = 0;
    uint64_t under = 0;
    uint64_t end = 0;
    auto oldest = runs_.end();
    for (auto run = runs_.begin(); run != runs_.end(); ++run) {
      const fabric::Registration& one = *run->second.registration;
      registered += one.size();
      under += EndOf(one) - std::max(end, one.offset());
      const bool overlaps = one.offset() < end;
      end = EndOf(one);
      if (overlaps && one.offset() != but && Unheld(run->second.registration) &&
          (oldest == runs_.end() || run->second.last_used < oldest->second.last_used)) {
        oldest = run;
      }
    }
    if (registered <= kMostOverlap * under || oldest == runs_.end()) return;
    const bool over = oldest->second.registration->Retire();
    (over ? *ended : left_).push_back(std::move(oldest->second.registration));
    runs_.erase(oldest);
  }
}

}  // namespace ar_grpc::protocol
