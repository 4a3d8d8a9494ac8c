// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_READS_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_READS_H_

#include <array>
#include <cstddef>
#include <memory>
#include <utility>

#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/memory/segment.h"
#include "third_party/ar_grpc/protocol/figures.h"
#include "third_party/ar_grpc/protocol/measure_time.h"

// What one-sided reads take, whether a fabric answers at once or later.
namespace ar_grpc::protocol::measuring {

// Reads of memory that the other end exported.
class Reads {
 public:
  Reads(fabric::Connection* connection, fabric::Key key, std::shared_ptr<memory::Segment> target,
        Clock::time_point deadline)
      : connection_(connection),
        key_(std::move(key)),
        target_(std::move(target)),
        deadline_(deadline) {}

  // Starts `count` reads of `size` bytes each, from `part` on, and waits for them; false if one
  // failed, or the deadline passed.
  bool Get(size_t part, int count, size_t size);

 private:
  fabric::Connection* const connection_;
  const fabric::Key key_;
  const std::shared_ptr<memory::Segment> target_;
  const Clock::time_point deadline_;
};

inline constexpr int kManyReads = 8;
// Each part has its own place, so that threads that copy at the same time write apart.
inline constexpr int kParts = static_cast<int>(kAreaBytes / kPartBytes);

struct ReadTimes {
  Least one;   // of next to nothing
  Least many;  // kManyReads of them, started together
  Least part;  // of a device
  // kParts parts, by k + 1 threads or k + 1 at a time.
  std::array<Least, kMaxCopiers> parallel;
};

// One burst. With `parallel` also several parts at the same time.
void MeasureReads(Reads* reads, bool inline_get, bool parallel, ReadTimes* times);
// What follows from the times, if there are any.
void TakeReads(const ReadTimes& times, Figures* figures);

}  // namespace ar_grpc::protocol::measuring

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_READS_H_
