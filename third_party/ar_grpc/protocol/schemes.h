// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_SCHEMES_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_SCHEMES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "third_party/ar_grpc/protocol/figures.h"

// The ways in which a tensor can travel, and which of them is the cheapest for each size. Every way
// has a pure cost function over a fabric's figures; the lower envelope of these functions is the
// table. The idea is UCX's protocol selection (ucp/proto).
namespace ar_grpc::protocol {

enum class Scheme {
  // In the message itself, through the stream.
  kEager,
  // A descriptor in the message; the receiver reads the sender's tensor where it lies.
  kRead,
  // As kRead, after the sender copied the tensor into memory that can be read.
  kStagedRead,
  // A descriptor in the message; the receiver asks for chunks through the stream.
  kChunked,
};

struct Situation {
  uint64_t bytes = 0;
  // The receiver can read memory that the sender registered.
  bool can_read = false;
  // The tensor lies in such memory.
  bool in_segment = false;
  // Of tensors that went before it through the stream, and that a far peer has not taken yet
  // (Link::CountEager).
  uint64_t bytes_ahead = 0;
};

// The largest tensor that fits into one message: a protobuf is limited to 2 GiB, and the rest of
// the message needs some of them.
inline constexpr uint64_t kEagerLimit = (uint64_t{1} << 31) - (uint64_t{64} << 10);

// A scheme joins by a class here and its place in AllSchemes.
class SchemeModel {
 public:
  virtual ~SchemeModel() = default;
  virtual Scheme scheme() const = 0;
  virtual const char* name() const = 0;
  virtual bool Possible(const Situation& situation) const = 0;
  // Microseconds until the receiver's tensor has the bytes; of a possible situation.
  virtual double Cost(const Situation& situation, const Figures& figures) const = 0;
  // The sizes after which Cost or Possible jumps or bends. Between them Cost is a straight line, or
  // bends so slowly that an eighth of an octave is one.
  virtual std::vector<uint64_t> Bends(const Figures& figures) const = 0;
};

// In the order that decides between equals.
const std::vector<const SchemeModel*>& AllSchemes();
const SchemeModel& ModelOf(Scheme scheme);

// From `first` bytes on, up to the next row, `scheme` is the cheapest.
struct Row {
  uint64_t first;
  Scheme scheme;
};

// What follows from one fabric's figures. Immutable.
class SchemeTable {
 public:
  static SchemeTable Make(const Figures& figures);
  // The lower envelope of any schemes, which must outlive the call; for tests of the envelope.
  static std::vector<Row> Envelope(const std::vector<const SchemeModel*>& schemes,
                                   const Figures& figures, bool can_read, bool in_segment);

  // By the rows, or by the costs themselves where bytes are ahead.
  Scheme Choose(const Situation& situation) const;
  // With no bytes ahead. Of increasing size; the first row starts at 0.
  const std::vector<Row>& rows(bool can_read, bool in_segment) const {
    return rows_[can_read][in_segment];
  }
  const Figures& figures() const { return figures_; }
  // The rows for people: one line each, with the cost at its start.
  std::string Print(bool can_read, bool in_segment) const;

 private:
  explicit SchemeTable(const Figures& figures) : figures_(figures) {}

  Figures figures_;
  std::array<std::array<std::vector<Row>, 2>, 2> rows_;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_SCHEMES_H_
