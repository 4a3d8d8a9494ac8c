// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/measure_reads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "third_party/ar_grpc/base/limits.h"
#include "third_party/ar_grpc/base/thread.h"

namespace ar_grpc::protocol::measuring {
namespace {

// kParts parts by `threads` threads at the same time, from when all are there to when the last
// ends. Negative where a thread is not to be had, or does not come.
double ParallelReadUs(Reads* reads, int threads) {
  constexpr double kPatienceUs = 2000;
  std::atomic<int> there{0};
  std::atomic<bool> go{false};
  std::atomic<bool> never{false};
  std::atomic<int> next{0};
  std::atomic<bool> failed{false};
  std::vector<Clock::time_point> ends(static_cast<size_t>(threads));
  const auto work = [&](size_t who) {
    for (int part = next++; part < kParts; part = next++) {
      if (!reads->Get(static_cast<size_t>(part), 1, kPartBytes)) failed = true;
    }
    ends[who] = Clock::now();
  };
  Clock::time_point begin;
  {
    std::vector<Thread> helpers;
    for (int who = 1; who < threads; ++who) {
      StatusOr<Thread> helper = StartThread("ar-grpc measure", [&, who] {
        ++there;
        while (!go && !never) sched_yield();
        if (go) work(static_cast<size_t>(who));
      });
      if (!helper.ok()) break;
      helpers.push_back(std::move(*helper));
    }
    const Watch watch;
    while (there < static_cast<int>(helpers.size()) && watch.us() < kPatienceUs) sched_yield();
    if (there < threads - 1) {
      never = true;
      failed = true;
    } else {
      begin = Clock::now();
      go = true;
      work(0);
    }
  }
  return failed ? -1 : Us(*std::max_element(ends.begin(), ends.end()) - begin);
}

}  // namespace

bool Reads::Get(size_t part, int count, size_t size) {
  struct Ended {
    std::atomic<int> good{0};
    std::atomic<int> bad{0};
  };
  // What a device did not answer by then it will not answer soon; it gets no more to do.
  if (Clock::now() > deadline_) return false;
  // An operation can end later than anybody waits.
  const auto ended = std::make_shared<Ended>();
  for (int i = 0; i < count; ++i) {
    const size_t at = (part + static_cast<size_t>(i)) * kPartBytes % kAreaBytes;
    connection_->Get(
        key_, at, target_->data() + kAreaBytes + at, size, target_,
        [ended](const Status& status) { (status.ok() ? ended->good : ended->bad).fetch_add(1); });
  }
  for (int spins = 0; ended->good.load() + ended->bad.load() < count; ++spins) {
    connection_->Progress();
    if (spins < 100) continue;
    if (Clock::now() > deadline_) return false;
    sched_yield();
  }
  return ended->bad.load() == 0;
}

void MeasureReads(Reads* reads, bool inline_get, bool parallel, ReadTimes* times) {
  constexpr size_t kNothing = 64;
  for (int i = 0; i < 4; ++i) {
    const Watch one;
    if (reads->Get(0, 1, kNothing)) times->one.Add(one.us());
    const Watch many;
    if (reads->Get(0, kManyReads, kNothing)) times->many.Add(many.us());
    if (inline_get) continue;
    const Watch part;
    if (reads->Get(static_cast<size_t>(i), 1, kPartBytes)) times->part.Add(part.us());
  }
  for (int k = 1; k <= kMaxCopiers && (k == 1 || parallel); ++k) {
    Least& least = times->parallel[static_cast<size_t>(k - 1)];
    if (inline_get) {
      // More threads than cores are only as fast as there are cores.
      if (k > UsableCores()) break;
      const double us = ParallelReadUs(reads, k);
      if (us > 0) least.Add(us);
    } else {
      const Watch watch;
      bool good = true;
      for (int part = 0; part < kParts; part += k) {
        good =
            reads->Get(static_cast<size_t>(part), std::min(k, kParts - part), kPartBytes) && good;
      }
      if (good) least.Add(watch.us());
    }
  }
}

void TakeReads(const ReadTimes& times, Figures* figures) {
  const double all = static_cast<double>(kParts) * kPartBytes;
  const Least& alone = times.parallel[0];
  if (!times.many.seen() || !(alone.seen() || times.part.seen())) return;
  Stage& get = figures->get;
  get.operation_us = std::max(times.many.us() - times.one.us(), 0.0) / (kManyReads - 1);
  get.start_us = std::max(times.one.us() - get.operation_us, 0.0);
  // Copies are measured over all parts, whose bytes no cache of a core holds; a device's reads one
  // by one, since it has the next to do while an end is waited for.
  get.bytes_per_us = times.part.seen()
                         ? times.part.Rate(static_cast<double>(kPartBytes), times.one.us())
                         : alone.Rate(all, kParts * get.operation_us);
  // Where a part took no longer than next to nothing did, what they differ by is no rate; no read
  // is faster than several at the same time.
  double fastest = 0;
  for (const Least& parallel : times.parallel) {
    if (parallel.seen()) fastest = std::max(fastest, parallel.Rate(all, 0));
  }
  if (times.part.seen() && fastest > 0) get.bytes_per_us = std::min(get.bytes_per_us, fastest);
  double rate = get.bytes_per_us;
  for (size_t k = 0; k < kMaxCopiers; ++k) {
    const Least& parallel = times.parallel[k];
    if (parallel.seen()) rate = parallel.Rate(all, 0);
    figures->parallel_bytes_per_us[k] = rate;
  }
}

}  // namespace ar_grpc::protocol::measuring
