// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/schemes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <limits>

namespace ar_grpc::protocol {
namespace {

// Tensors are smaller than this.
constexpr uint64_t kLargest = uint64_t{1} << 62;
// Sizes of the grid in each octave.
constexpr uint64_t kGridSteps = 8;

// --- what the schemes are made of ---

double MessageUs(const Figures& figures) {
  return figures.send.start_us + figures.receive.start_us;
}

// An answer of no bytes, which every scheme begins with: it ends at the receiver, which slept.
double AnswerUs(const Figures& figures) { return MessageUs(figures) + figures.wake_us; }

// Nobody waits for the release, but it takes both ends' time.
double OfferUs(const Figures& figures) { return figures.offer_us + figures.message_us; }

double StreamUs(const Stage& stage, double bytes) {
  return stage.Us(bytes, bytes / static_cast<double>(kFrameBytes)) - stage.start_us;
}

// The bytes through the stream: the first window's at one end after the other, the others' at both
// ends at the same time. These go from core to core, which is no faster than a copy, however fast
// one thread found both ends, which had in its core's cache what it had written.
double PipeUs(const Figures& figures, double bytes) {
  const double first = std::min(bytes, static_cast<double>(figures.window_bytes));
  const double rest = bytes - first;
  return StreamUs(figures.send, first) + StreamUs(figures.receive, first) +
         std::max({StreamUs(figures.send, rest), StreamUs(figures.receive, rest),
                   rest / figures.copy_bytes_per_us});
}

// What a tensor that goes through the stream waits for a peer that is far, behind what is ahead of
// it: the first credits are there, and each of the others is a round trip away, less what is sent
// meanwhile. One that takes no more of them than its descriptor would is never the cause of that.
double CreditUs(const Figures& figures, const Situation& situation) {
  if (situation.bytes <= kDescriptorBytes) return 0;
  const double bytes =
      static_cast<double>(situation.bytes) + static_cast<double>(situation.bytes_ahead);
  const double credit = static_cast<double>(figures.credit_bytes);
  if (bytes <= credit) return 0;
  return std::max(figures.far_us - StreamUs(figures.send, credit), 0.0) * bytes / credit;
}

// A message whose bytes lie in the tensor at the end. It is parsed, and copied there, once all of
// it has come.
double DeliverUs(const Figures& figures, const Situation& situation) {
  const double bytes = static_cast<double>(situation.bytes);
  return PipeUs(figures, bytes) + CreditUs(figures, situation) + bytes / figures.copy_bytes_per_us;
}

// One-sided, in parts. The thread that knows first begins alone; the others are woken.
double GetUs(const Figures& figures, uint64_t size) {
  const double bytes = static_cast<double>(size);
  const double parts = std::max(bytes / static_cast<double>(kPartBytes), 1.0);
  const int copiers = CopiersFor(size);
  const double begun =
      std::min(bytes, copiers == 1 ? bytes : figures.wake_us * figures.get.bytes_per_us);
  return figures.far_us + figures.get.Us(begun, parts / copiers) +
         (bytes - begun) / figures.parallel_bytes_per_us[copiers - 1];
}

std::vector<uint64_t> GetBends(const Figures& figures) {
  std::vector<uint64_t> bends = {kPartBytes};
  for (uint64_t k = 2; k <= kMaxCopiers; ++k) bends.push_back(k * kBytesPerCopier - 1);
  const double woken = figures.wake_us * figures.get.bytes_per_us;
  if (woken >= 0 && woken < static_cast<double>(kLargest)) {
    bends.push_back(static_cast<uint64_t>(woken));
  }
  return bends;
}

// --- the schemes ---

class Eager final : public SchemeModel {
 public:
  Scheme scheme() const override { return Scheme::kEager; }
  const char* name() const override { return "eager"; }
  bool Possible(const Situation& situation) const override {
    return situation.bytes <= kEagerLimit;
  }
  double Cost(const Situation& situation, const Figures& figures) const override {
    return AnswerUs(figures) + DeliverUs(figures, situation);
  }
  std::vector<uint64_t> Bends(const Figures& figures) const override {
    return {kEagerLimit, figures.window_bytes, figures.credit_bytes, kDescriptorBytes};
  }
};

class Read final : public SchemeModel {
 public:
  Scheme scheme() const override { return Scheme::kRead; }
  const char* name() const override { return "rendezvous"; }
  bool Possible(const Situation& situation) const override {
    return situation.can_read && situation.in_segment;
  }
  double Cost(const Situation& situation, const Figures& figures) const override {
    return AnswerUs(figures) + OfferUs(figures) + GetUs(figures, situation.bytes);
  }
  std::vector<uint64_t> Bends(const Figures& figures) const override { return GetBends(figures); }
};

class StagedRead final : public SchemeModel {
 public:
  Scheme scheme() const override { return Scheme::kStagedRead; }
  const char* name() const override { return "staged rendezvous"; }
  bool Possible(const Situation& situation) const override { return situation.can_read; }
  // The sender stages all of it before it answers. The memory for it may have to be registered;
  // whether it was before is not known here, so it counts.
  double Cost(const Situation& situation, const Figures& figures) const override {
    const double bytes = static_cast<double>(situation.bytes);
    return AnswerUs(figures) + OfferUs(figures) + bytes / figures.copy_bytes_per_us +
           figures.registration.Us(bytes, 1) + GetUs(figures, situation.bytes);
  }
  std::vector<uint64_t> Bends(const Figures& figures) const override { return GetBends(figures); }
};

class Chunked final : public SchemeModel {
 public:
  Scheme scheme() const override { return Scheme::kChunked; }
  const char* name() const override { return "chunked rendezvous"; }
  bool Possible(const Situation&) const override { return true; }
  // The first chunk is asked for after the answer; the others while one is under way. Each is
  // copied into the tensor by a poller, which receives nothing meanwhile.
  double Cost(const Situation& situation, const Figures& figures) const override {
    const double bytes = static_cast<double>(situation.bytes);
    const double call = 2 * MessageUs(figures) + figures.call_us;
    const double chunks = std::max(bytes / static_cast<double>(PlanChunks(figures).bytes), 1.0);
    // While the first is on its way others are, as many as PlanChunks has under way.
    return AnswerUs(figures) + OfferUs(figures) + figures.far_us + 2 * figures.wake_us +
           chunks * call + DeliverUs(figures, situation);
  }
  std::vector<uint64_t> Bends(const Figures& figures) const override {
    return {PlanChunks(figures).bytes, figures.window_bytes, figures.credit_bytes,
            kDescriptorBytes};
  }
};

// --- the envelope ---

// What a scheme costs in us; infinity where it is not possible. Any possible scheme is cheaper than
// an impossible one, also where its cost overflowed or is no number because the figures are.
double CostOrNever(const SchemeModel& model, const Figures& figures, const Situation& situation) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  if (!model.Possible(situation)) return kNever;
  const double cost = model.Cost(situation, figures);
  constexpr double kMost = std::numeric_limits<double>::max();
  return cost < kMost ? cost : kMost;
}

// Every eighth of an octave, and both sides of every bend.
std::vector<uint64_t> Grid(const std::vector<const SchemeModel*>& schemes, const Figures& figures) {
  std::vector<uint64_t> sizes = {0};
  for (uint64_t octave = 1; octave < kLargest; octave *= 2) {
    for (uint64_t step = 0; step < kGridSteps; ++step) {
      sizes.push_back(octave + octave / kGridSteps * step);
    }
  }
  for (const SchemeModel* const model : schemes) {
    for (const uint64_t bend : model->Bends(figures)) {
      if (bend < kLargest) sizes.insert(sizes.end(), {bend, bend + 1});
    }
  }
  sizes.push_back(kLargest);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

// The first of equals.
Scheme Cheapest(const std::vector<const SchemeModel*>& schemes, const Figures& figures,
                const Situation& situation) {
  const SchemeModel* best = nullptr;
  double least = std::numeric_limits<double>::infinity();
  for (const SchemeModel* const model : schemes) {
    const double cost = CostOrNever(*model, figures, situation);
    if (best != nullptr && !(cost < least)) continue;
    best = model;
    least = cost;
  }
  return best->scheme();
}

std::string Bytes(uint64_t bytes) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g %s", value, kUnits[unit]);
  return text;
}

}  // namespace

const std::vector<const SchemeModel*>& AllSchemes() {
  static const auto* const schemes =
      new std::vector<const SchemeModel*>{new Eager, new Read, new StagedRead, new Chunked};
  return *schemes;
}

const SchemeModel& ModelOf(Scheme scheme) {
  return **std::find_if(AllSchemes().begin(), AllSchemes().end(),
                        [&](const SchemeModel* model) { return model->scheme() == scheme; });
}

std::vector<Row> SchemeTable::Envelope(const std::vector<const SchemeModel*>& schemes,
                                       const Figures& figures, bool can_read, bool in_segment) {
  const auto cheapest = [&](uint64_t bytes) {
    return Cheapest(schemes, figures, {bytes, can_read, in_segment});
  };
  const std::vector<uint64_t> grid = Grid(schemes, figures);
  std::vector<Row> rows = {{0, cheapest(0)}};
  // Between neighbours of the grid the costs are straight lines. There, what is the cheapest at
  // both is the cheapest between them, and what ceases to be so does it once, which bisection
  // finds.
  for (size_t i = 0; i + 1 < grid.size(); ++i) {
    const Scheme last = cheapest(grid[i + 1]);
    while (rows.back().scheme != last) {
      uint64_t below = std::max(grid[i], rows.back().first);
      uint64_t above = grid[i + 1];
      while (above - below > 1) {
        const uint64_t middle = below + (above - below) / 2;
        (cheapest(middle) == rows.back().scheme ? below : above) = middle;
      }
      rows.push_back({above, cheapest(above)});
    }
  }
  return rows;
}

SchemeTable SchemeTable::Make(const Figures& figures) {
  SchemeTable table(figures);
  for (const bool can_read : {false, true}) {
    for (const bool in_segment : {false, true}) {
      table.rows_[can_read][in_segment] = Envelope(AllSchemes(), figures, can_read, in_segment);
    }
  }
  return table;
}

Scheme SchemeTable::Choose(const Situation& situation) const {
  if (situation.bytes_ahead > 0) return Cheapest(AllSchemes(), figures_, situation);
  const std::vector<Row>& table = rows(situation.can_read, situation.in_segment);
  const auto next =
      std::upper_bound(table.begin(), table.end(), situation.bytes,
                       [](uint64_t size, const Row& row) { return size < row.first; });
  return std::prev(next)->scheme;
}

std::string SchemeTable::Print(bool can_read, bool in_segment) const {
  const std::vector<Row>& table = rows(can_read, in_segment);
  std::string text;
  for (size_t i = 0; i < table.size(); ++i) {
    const SchemeModel& model = ModelOf(table[i].scheme);
    const std::string until = i + 1 < table.size() ? Bytes(table[i + 1].first - 1) : "any size";
    char line[128];
    std::snprintf(line, sizeof(line), "%10s .. %-10s  %-18s  %8.1f us\n",
                  Bytes(table[i].first).c_str(), until.c_str(), model.name(),
                  model.Cost({table[i].first, can_read, in_segment}, figures_));
    text += line;
  }
  return text;
}

}  // namespace ar_grpc::protocol
