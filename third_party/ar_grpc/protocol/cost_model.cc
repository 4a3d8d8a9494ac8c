// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/cost_model.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>

namespace ar_grpc::protocol {
namespace {

constexpr std::array kProtocols = {Protocol::kEager, Protocol::kRendezvous,
                                   Protocol::kStagedRendezvous, Protocol::kChunkedRendezvous};
// HTTP/2's frames of the stream carry this much each.
constexpr double kFrameBytes = 16384;
// A frame's header, flow control and slices, as a part of a whole message's cost.
constexpr double kFrameShare = 0.1;
// Tensors are smaller than this.
constexpr uint64_t kLargest = uint64_t{1} << 62;

Protocol Cheapest(const Figures& figures, uint64_t bytes, bool in_region) {
  return *std::min_element(
      kProtocols.begin(), kProtocols.end(), [&](Protocol left, Protocol right) {
        return Cost(left, figures, bytes, in_region) < Cost(right, figures, bytes, in_region);
      });
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

const char* ProtocolName(Protocol protocol) {
  switch (protocol) {
    case Protocol::kEager:
      return "eager";
    case Protocol::kRendezvous:
      return "rendezvous";
    case Protocol::kStagedRendezvous:
      return "staged rendezvous";
    case Protocol::kChunkedRendezvous:
      return "chunked rendezvous";
  }
  return "?";
}

double Cost(Protocol protocol, const Figures& figures, uint64_t bytes, bool in_region) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const double size = static_cast<double>(bytes);
  const double copy = size / figures.copy_bytes_per_us;
  const double streamed =
      copy * figures.stream_copies + size / kFrameBytes * figures.message_us * kFrameShare;
  // To hold the offer and to release it take as long as a message each. Nobody waits for the
  // release, so what it takes to wake the sender for it does not count.
  const double rendezvous = 2 * figures.message_us;
  switch (protocol) {
    case Protocol::kEager:
      return bytes <= kEagerLimit ? figures.message_us + streamed : kNever;
    case Protocol::kRendezvous:
      return figures.one_sided && in_region ? figures.message_us + rendezvous + copy : kNever;
    case Protocol::kStagedRendezvous:
      return figures.one_sided ? figures.message_us + rendezvous + 2 * copy : kNever;
    case Protocol::kChunkedRendezvous:
      // Each chunk is a call of its own; with several under way their latencies overlap.
      return 2 * figures.message_us + streamed +
             size / static_cast<double>(kChunkBytes) * (2 * figures.message_us + figures.wake_us);
  }
  return kNever;
}

std::vector<Row> Envelope(const Figures& figures, bool in_region) {
  std::vector<Row> rows = {{0, Cheapest(figures, 0, in_region)}};
  // The functions are straight lines with a jump at the eager limit, so between two powers of two
  // one crossing is found by bisection; kEagerLimit's jump is a crossing like any other.
  for (uint64_t from = 1; from < kLargest; from *= 2) {
    while (Cheapest(figures, from * 2, in_region) != rows.back().protocol) {
      uint64_t below = std::max(from, rows.back().first);
      if (Cheapest(figures, below, in_region) != rows.back().protocol) break;
      uint64_t above = from * 2;
      while (above - below > 1) {
        const uint64_t middle = below + (above - below) / 2;
        (Cheapest(figures, middle, in_region) == rows.back().protocol ? below : above) = middle;
      }
      rows.push_back({above, Cheapest(figures, above, in_region)});
    }
  }
  return rows;
}

Protocol Choose(const std::vector<Row>& table, uint64_t bytes) {
  const auto next =
      std::upper_bound(table.begin(), table.end(), bytes,
                       [](uint64_t size, const Row& row) { return size < row.first; });
  return std::prev(next)->protocol;
}

std::string Print(const std::vector<Row>& table, const Figures& figures, bool in_region) {
  std::string text;
  for (size_t i = 0; i < table.size(); ++i) {
    const std::string until = i + 1 < table.size() ? Bytes(table[i + 1].first - 1) : "any size";
    char line[128];
    std::snprintf(line, sizeof(line), "%10s .. %-10s  %-18s  %8.1f us\n",
                  Bytes(table[i].first).c_str(), until.c_str(), ProtocolName(table[i].protocol),
                  Cost(table[i].protocol, figures, table[i].first, in_region));
    text += line;
  }
  return text;
}

}  // namespace ar_grpc::protocol
