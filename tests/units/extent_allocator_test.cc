// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Extents never overlap, coalesce, stay dense, and are trimmed when idle. Exits 0 then.

#include "third_party/ar_grpc/memory/extent_allocator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

using ar_grpc::memory::ExtentAllocator;
using Clock = ExtentAllocator::Clock;
using Range = ExtentAllocator::Range;

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kGiB = 1024 * kMiB;
constexpr uint64_t kPage = 4 * kKiB;
constexpr auto kInterval = std::chrono::seconds(10);

// The span that is in use may be longer than what was ever in use at once by this factor.
constexpr double kMostSpan = 2.0;

bool Expect(bool held, const char* what) {
  if (!held) std::fprintf(stderr, "failed: %s\n", what);
  return held;
}

ExtentAllocator::Options OfSize(uint64_t size) {
  ExtentAllocator::Options options;
  options.size = size;
  options.page_size = kPage;
  options.interval = kInterval;
  return options;
}

uint64_t Sum(const std::vector<Range>& ranges) {
  uint64_t sum = 0;
  for (const Range& range : ranges) sum += range.length;
  return sum;
}

// What the allocator should know, page by page and granule by granule.
class Model {
 public:
  explicit Model(uint64_t size)
      : used_(size / ExtentAllocator::kGranule), resident_(size / kPage) {}

  // false where something of it is in use already.
  bool Use(uint64_t offset, uint64_t length) {
    for (uint64_t at = offset; at < offset + length; at += ExtentAllocator::kGranule) {
      if (used_[at / ExtentAllocator::kGranule]) return false;
      used_[at / ExtentAllocator::kGranule] = true;
      resident_[at / kPage] = true;
    }
    return true;
  }

  void Warm(const Range& range) {
    for (uint64_t page = range.offset / kPage; page < range.end() / kPage; ++page) {
      resident_[page] = true;
    }
  }

  void Free(uint64_t offset, uint64_t length) {
    for (uint64_t at = offset; at < offset + length; at += ExtentAllocator::kGranule) {
      used_[at / ExtentAllocator::kGranule] = false;
    }
  }

  // false where a page is in use, or holds no memory.
  bool Discard(const Range& range) {
    for (uint64_t page = range.offset / kPage; page < range.end() / kPage; ++page) {
      if (!IsFree(page) || !resident_[page]) return false;
      resident_[page] = false;
    }
    return true;
  }

  uint64_t WarmFree() const {
    uint64_t bytes = 0;
    for (uint64_t page = 0; page < resident_.size(); ++page) {
      if (resident_[page] && IsFree(page)) bytes += kPage;
    }
    return bytes;
  }

 private:
  bool IsFree(uint64_t page) const {
    constexpr uint64_t kGranules = kPage / ExtentAllocator::kGranule;
    return std::none_of(used_.begin() + page * kGranules, used_.begin() + (page + 1) * kGranules,
                        [](bool used) { return used; });
  }

  std::vector<bool> used_;
  std::vector<bool> resident_;
};

bool FollowsModel(unsigned seed) {
  constexpr uint64_t kSize = 4 * kMiB;
  std::mt19937 random(seed);
  ExtentAllocator allocator(OfSize(kSize));
  Model model(kSize);
  std::vector<std::pair<uint64_t, uint64_t>> live;  // offset, length
  uint64_t in_use = 0;
  Clock::time_point now = Clock::now();
  bool good = true;
  for (int step = 0; step < 4000 && good; ++step) {
    const unsigned what = random() % 100;
    if (what < 52) {
      const uint64_t bytes = 1 + random() % (random() % 4 == 0 ? 200 * kKiB : 20 * kKiB);
      const uint64_t alignment = uint64_t{1} << (random() % 14);
      const std::optional<uint64_t> offset = allocator.Allocate(bytes, alignment);
      if (!offset) continue;
      const std::optional<uint64_t> length = allocator.SizeOf(*offset);
      good &= Expect(length && *length >= bytes && *length < bytes + ExtentAllocator::kGranule &&
                         *offset + *length <= kSize,
                     "the size of an allocation");
      good &= Expect(*offset % std::max(alignment, ExtentAllocator::kGranule) == 0, "alignment");
      good &= good && Expect(model.Use(*offset, *length), "no overlap");
      if (good) live.emplace_back(*offset, *length);
      if (good) in_use += *length;
    } else if (what == 52) {
      const uint64_t first = random() % (kSize / kPage);
      const Range pages{first * kPage, (1 + random() % (kSize / kPage - first)) * kPage};
      allocator.Warm(pages);
      model.Warm(pages);
    } else if (what < 99 && !live.empty()) {
      std::swap(live[random() % live.size()], live.back());
      const auto [offset, length] = live.back();
      live.pop_back();
      model.Free(offset, length);
      in_use -= length;
      good &= Expect(allocator.Free(offset), "a free");
      good &= Expect(!allocator.Free(offset), "a second free is refused");
      good &= Expect(!allocator.Free(offset + 1) && !allocator.SizeOf(offset), "no such offset");
    } else if (what == 99) {
      now += kInterval + std::chrono::seconds(1);
      const uint64_t limit = random() % 2 == 0 ? UINT64_MAX : 64 * kKiB;
      const std::vector<Range> ranges = allocator.Trim(now, limit);
      good &= Expect(Sum(ranges) <= limit, "no more is trimmed than asked for");
      // Nothing is cached now, and some of what is free is taken out.
      const uint64_t from = random() % kSize;
      const Range part{from, random() % (kSize - from)};
      uint64_t within = 0;
      for (const auto& [offset, length] : live) {
        const uint64_t begin = std::max(offset, part.offset);
        within += std::max(begin, std::min(offset + length, part.end())) - begin;
      }
      good &= Expect(allocator.InUse(part) == within, "bytes in use in a part");
      for (const Range& range : ranges) {
        good &= Expect(range.offset % kPage == 0 && range.length % kPage == 0, "whole pages");
        good &= Expect(model.Discard(range), "only free pages that hold memory are trimmed");
        good &= Expect(!allocator.Return({range.offset, range.length + kPage}, true) &&
                           !allocator.Return({range.offset + kPage, range.length}, true),
                       "only what was trimmed can be returned");
        good &= Expect(allocator.Return(range, true) && !allocator.Return(range, true), "once");
      }
      good &= Expect(allocator.counters().warm_free == model.WarmFree(), "warm_free");
    }
    good &= Expect(allocator.counters().in_use == in_use, "in_use");
  }
  std::sort(live.begin(), live.end());
  const std::vector<Range> used = allocator.InUse();
  good &= Expect(std::equal(used.begin(), used.end(), live.begin(), live.end(),
                            [](const Range& range, const std::pair<uint64_t, uint64_t>& one) {
                              return range.offset == one.first && range.length == one.second;
                            }),
                 "what is in use");
  for (const auto& [offset, length] : live) good &= Expect(allocator.Free(offset), "a last free");
  const std::optional<uint64_t> all = allocator.Allocate(kSize, 1);
  return Expect(all && *all == 0, "all coalesces") && good;
}

bool RefusesWhatDoesNotFit() {
  ExtentAllocator::Options options = OfSize(kMiB + 100);
  options.most_in_use = kMiB / 2;
  ExtentAllocator allocator(options);
  return Expect(!allocator.Allocate(UINT64_MAX, 1) && !allocator.Allocate(1, uint64_t{1} << 63) &&
                    !allocator.Allocate(kMiB / 2 + 1, 1),
                "too much") &&
         Expect(allocator.Allocate(kMiB / 2, kMiB) == 0, "as much as may be in use") &&
         Expect(!allocator.Allocate(1, 1), "no more") && Expect(allocator.Free(0), "free") &&
         Expect(allocator.Allocate(1, 1).has_value(), "again") &&
         Expect(!ExtentAllocator(OfSize(100)).Allocate(1, 1), "less than a page");
}

bool PrefersWarmMemory() {
  ExtentAllocator allocator(OfSize(kGiB));
  const uint64_t low = *allocator.Allocate(4 * kMiB, 1);
  const uint64_t high = *allocator.Allocate(kMiB, 1);
  const uint64_t last = *allocator.Allocate(kMiB, 1);
  Clock::time_point now = Clock::now() + kInterval;
  bool good = Expect(low == 0 && high == 4 * kMiB && last == 5 * kMiB, "lowest addresses first");
  good &= Expect(allocator.Free(low) && allocator.Trim(now).empty(), "busy until now");
  const std::vector<Range> idle = allocator.Trim(now += kInterval);
  good &= Expect(idle.size() == 1 && idle[0].offset == low && idle[0].length == 4 * kMiB, "idle");
  good &= Expect(allocator.InUse({0, 8 * kMiB}) == 2 * kMiB, "what is trimmed is not in use");
  // While it is being discarded it is nobody's.
  bool needed_cold = false;
  const uint64_t cold = *allocator.Allocate(4 * kMiB, 1, &needed_cold);
  good &= Expect(needed_cold, "it held no memory");
  good &= Expect(cold == 6 * kMiB, "not what is being discarded");
  good &= Expect(allocator.Return(idle[0], true), "return");
  good &= Expect(allocator.Free(high), "free");
  needed_cold = false;
  good &= Expect(allocator.Allocate(kMiB / 2, 1, &needed_cold) == high && !needed_cold,
                 "warm before cold, though it is higher");
  good &= Expect(allocator.Allocate(kMiB, 1) == low, "then the lowest cold");
  allocator.Warm({16 * kMiB, kMiB});
  good &= Expect(allocator.Allocate(kMiB, 1, &needed_cold) == 16 * kMiB && !needed_cold,
                 "or what else holds memory");
  return good;
}

// Of 100 MiB, 70 lie unused during an interval.
bool TrimsExactlyTheIdle() {
  ExtentAllocator allocator(OfSize(kGiB));
  const auto use = [&allocator](int count) {
    std::vector<uint64_t> offsets;
    for (int i = 0; i < count; ++i) offsets.push_back(*allocator.Allocate(kMiB, 1));
    for (uint64_t offset : offsets) allocator.Free(offset);
  };
  use(100);
  Clock::time_point now = Clock::now() + kInterval;
  bool good = Expect(allocator.Trim(now).empty(), "it was in use in the first interval");
  use(30);
  good &= Expect(allocator.Trim(now + kInterval / 2).empty(), "no interval has passed");
  std::vector<Range> ranges = allocator.Trim(now += kInterval, 50 * kMiB);
  good &= Expect(Sum(ranges) == 50 * kMiB, "as much as is asked for");
  for (const Range& range : ranges) good &= Expect(allocator.Return(range, true), "return");
  ranges = allocator.Trim(now);
  good &= Expect(Sum(ranges) == 20 * kMiB, "and the rest");
  for (const Range& range : ranges) good &= Expect(allocator.Return(range, true), "return");
  good &= Expect(allocator.Trim(now).empty(), "no more");
  good &= Expect(allocator.counters().warm_free == 30 * kMiB, "what is used stays warm");

  ranges = allocator.Trim(now += kInterval);
  good &= Expect(Sum(ranges) == 30 * kMiB, "an idle process");
  for (const Range& range : ranges) good &= Expect(allocator.Return(range, false), "return");
  good &= Expect(allocator.counters().warm_free == 30 * kMiB, "what was not discarded is warm");
  good &= Expect(allocator.Trim(now).empty(), "not twice in an interval");
  ranges = allocator.Trim(now += kInterval);
  good &= Expect(Sum(ranges) == 30 * kMiB, "it was idle in the next one, too");
  for (const Range& range : ranges) good &= Expect(allocator.Return(range, true), "return");
  good &= Expect(allocator.counters().warm_free == 0, "an idle process keeps nothing");
  return good;
}

// What lies warm makes room for cold memory, however lately it was used.
bool GivesUpTheExcess() {
  ExtentAllocator::Options options = OfSize(kGiB);
  options.most_held = 101 * kMiB;
  ExtentAllocator allocator(options);
  Clock::time_point now = Clock::now();
  const uint64_t first = *allocator.Allocate(60 * kMiB, 1);
  // So that no extent is warm and cold.
  const uint64_t between = *allocator.Allocate(kMiB, 1);
  bool good = Expect(allocator.Free(first), "free");
  good &= Expect(allocator.Trim(now += kInterval).empty(), "busy until now");
  good &= Expect(allocator.TakeExcess(kGiB).empty(), "61 of 101 MiB");
  bool cold = false;
  const uint64_t second = *allocator.Allocate(70 * kMiB, 1, &cold);
  std::vector<Range> ranges = allocator.TakeExcess(20 * kMiB - 1);
  good &= Expect(cold && Sum(ranges) == 20 * kMiB, "of 71 in use and 60 warm, what is asked for");
  good &= Expect(allocator.InUse({0, 60 * kMiB}) == 0, "what is taken is not in use");
  for (const Range& range : ranges) good &= Expect(allocator.Return(range, true), "return");
  ranges = allocator.TakeExcess(kGiB);
  good &= Expect(Sum(ranges) == 10 * kMiB, "and the rest of what is too much");
  for (const Range& range : ranges) good &= Expect(allocator.Return(range, true), "return");
  good &= Expect(allocator.TakeExcess(kGiB).empty(), "no more");
  good &= Expect(allocator.counters().warm_free == 30 * kMiB, "the rest stays warm");
  // All 60 were idle. Those that are left may have been in use, for all that is known.
  ranges = allocator.Trim(now += kInterval);
  good &= Expect(Sum(ranges) == 30 * kMiB, "what was idle and is warm");
  for (const Range& range : ranges) good &= Expect(allocator.Return(range, false), "return");

  const uint64_t third = *allocator.Allocate(80 * kMiB, 1);
  for (int i = 0; i < 2; ++i) {
    ranges = allocator.TakeExcess(kGiB);
    good &= Expect(Sum(ranges) == 30 * kMiB, "all, where more is in use than may be held");
    for (const Range& range : ranges) good &= Expect(allocator.Return(range, false), "return");
    for (const Range& range : ranges) good &= Expect(!allocator.Return(range, false), "once");
  }
  good &= Expect(allocator.counters().warm_free == 30 * kMiB, "not discarded, and so warm");
  good &= Expect(Sum(allocator.Trim(now += kInterval)) == 0,
                 "what was taken and returned was not idle");
  const uint64_t small = *allocator.Allocate(kMiB, 1, &cold);
  good &= Expect(allocator.Free(small) && Sum(allocator.TakeExcess(kGiB)) == 29 * kMiB,
                 "but what is cached");
  for (const uint64_t last : {between, second, third}) {
    good &= Expect(allocator.Free(last), "a last free");
  }
  return good;
}

// Sizes from 16 KiB to 64 MiB, each doubling as likely as the next, that come and go at random.
bool StaysDense(unsigned seed, bool trims) {
  constexpr uint64_t kLive = 2 * kGiB;
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> doublings(0, 12);
  ExtentAllocator allocator(OfSize(64 * kGiB));
  std::vector<uint64_t> live;
  uint64_t highest = 0;
  Clock::time_point now = Clock::now();
  for (int step = 0; step < 60000; ++step) {
    // Ebb and flow, so that holes of all ages are filled.
    const uint64_t aim = step % 20000 < 15000 ? kLive : kLive / 2;
    if (allocator.counters().in_use < aim) {
      const auto bytes = static_cast<uint64_t>(16 * kKiB * std::exp2(doublings(random)));
      const std::optional<uint64_t> offset = allocator.Allocate(bytes, 64);
      if (!Expect(offset.has_value(), "room")) return false;
      live.push_back(*offset);
      highest = std::max(highest, *offset + *allocator.SizeOf(*offset));
    } else {
      std::swap(live[random() % live.size()], live.back());
      allocator.Free(live.back());
      live.pop_back();
    }
    if (trims && step % 500 == 0) {
      for (const Range& range : allocator.Trim(now += kInterval)) allocator.Return(range, true);
    }
  }
  const double factor = static_cast<double>(highest) / allocator.counters().peak_in_use;
  std::fprintf(stderr, "span / peak in use: %.3f (seed %u%s)\n", factor, seed,
               trims ? ", trimmed" : "");
  return Expect(factor <= kMostSpan, "a dense span");
}

// Each thread writes what it was given; two in one place are a data race, which TSan reports.
bool ServesThreads() {
  constexpr uint64_t kSize = 32 * kMiB;
  ExtentAllocator::Options options = OfSize(kSize);
  options.interval = std::chrono::microseconds(50);
  options.most_held = kSize / 4;
  ExtentAllocator allocator(options);
  std::vector<unsigned> owner(kSize / ExtentAllocator::kGranule);
  std::atomic<bool> good{true};
  std::atomic<bool> done{false};
  const auto claim = [&](const Range& range, unsigned who) {
    for (uint64_t at = range.offset; at < range.end(); at += ExtentAllocator::kGranule) {
      owner[at / ExtentAllocator::kGranule] = who;
    }
  };
  const auto holds = [&](const Range& range, unsigned who) {
    for (uint64_t at = range.offset; at < range.end(); at += ExtentAllocator::kGranule) {
      if (owner[at / ExtentAllocator::kGranule] != who) good = false;
    }
  };
  std::vector<std::thread> threads;
  for (unsigned who = 1; who <= 4; ++who) {
    threads.emplace_back([&, who] {
      std::mt19937 random(who);
      std::vector<Range> live;
      for (int step = 0; step < 20000; ++step) {
        if (live.size() < 20) {
          const uint64_t bytes = 16 * kKiB << (random() % 5);
          const std::optional<uint64_t> offset = allocator.Allocate(bytes, 64);
          if (!offset) continue;
          live.push_back({*offset, bytes});
          claim(live.back(), who);
        } else {
          std::swap(live[random() % live.size()], live.back());
          holds(live.back(), who);
          if (!allocator.Free(live.back().offset)) good = false;
          live.pop_back();
        }
      }
      for (const Range& range : live) allocator.Free(range.offset);
    });
  }
  std::thread trimmer([&] {
    while (!done) {
      for (const auto& ranges : {allocator.Trim(Clock::now()), allocator.TakeExcess(kSize)}) {
        for (const Range& range : ranges) claim(range, 0);
        for (const Range& range : ranges) allocator.Return(range, true);
      }
      std::this_thread::yield();
    }
  });
  for (auto& thread : threads) thread.join();
  done = true;
  trimmer.join();
  return Expect(good, "each thread has its own memory") &&
         Expect(allocator.Allocate(kSize, 1) == 0, "all coalesces after many threads");
}

}  // namespace

int main() {
  bool good =
      RefusesWhatDoesNotFit() && PrefersWarmMemory() && TrimsExactlyTheIdle() && GivesUpTheExcess();
  for (unsigned seed = 1; seed <= 8; ++seed) good = good && FollowsModel(seed);
  for (unsigned seed = 1; seed <= 3; ++seed) {
    good = good && StaysDense(seed, false) && StaysDense(seed, true);
  }
  good = good && ServesThreads();
  return good ? 0 : 1;
}
