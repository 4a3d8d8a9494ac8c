// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_COST_MODEL_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_COST_MODEL_H_

#include <cstdint>
#include <string>
#include <vector>

// Which protocol carries a message of a given size. Every protocol has a pure cost function over
// the size and a fabric's measured figures; the lower envelope of these functions is the table.
// The idea is UCX's protocol selection (ucp/proto): nothing here measures, sleeps or looks at a
// peer, so tables are tested without hardware.
namespace ar_grpc::protocol {

// What was measured of a fabric on this machine.
struct Figures {
  // One memory copy, in bytes per microsecond.
  double copy_bytes_per_us = 0;
  // A message through the stream: what it costs beyond its bytes, in microseconds.
  double message_us = 0;
  // Waking a sleeping thread of the peer, in microseconds.
  double wake_us = 0;
  // Copies that a byte of the stream suffers between the two tensors.
  int stream_copies = 3;
  // Whether a peer can read the offered region by itself.
  bool one_sided = false;
};

enum class Protocol {
  // In the message itself, through the stream.
  kEager,
  // A descriptor in the message; the receiver reads the sender's tensor where it lies.
  kRendezvous,
  // As rendezvous, after the sender copied the tensor into memory that can be read.
  kStagedRendezvous,
  // A descriptor in the message; the receiver asks for chunks through the stream.
  kChunkedRendezvous,
};

const char* ProtocolName(Protocol protocol);

// The size of a chunk and how many are under way at once, at most.
inline constexpr uint64_t kChunkBytes = uint64_t{8} << 20;
inline constexpr int kChunksInFlight = 4;

// The largest tensor that fits into one message: a protobuf is limited to 2 GiB, and the rest of
// the message needs some of them.
inline constexpr uint64_t kEagerLimit = (uint64_t{1} << 31) - (uint64_t{64} << 10);

// Microseconds that `protocol` takes to bring `bytes` to the receiver's tensor; infinite where it
// cannot. `in_region`: whether the sender's tensor lies in its offered region.
double Cost(Protocol protocol, const Figures& figures, uint64_t bytes, bool in_region);

// From `first` bytes on, up to the next row, `protocol` is the cheapest.
struct Row {
  uint64_t first;
  Protocol protocol;
};

// The lower envelope over all sizes, as rows of increasing size; the first row starts at 0.
std::vector<Row> Envelope(const Figures& figures, bool in_region);

// The protocol for `bytes` in a table that Envelope made.
Protocol Choose(const std::vector<Row>& table, uint64_t bytes);

// The table for people: one line a row, with the cost at its start.
std::string Print(const std::vector<Row>& table, const Figures& figures, bool in_region);

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_COST_MODEL_H_
