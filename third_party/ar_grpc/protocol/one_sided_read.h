// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_ONE_SIDED_READ_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_ONE_SIDED_READ_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/figures.h"
#include "third_party/ar_grpc/protocol/link.h"
#include "third_party/ar_grpc/protocol/rendezvous_messages.h"
#include "third_party/ar_grpc/protocol/write_gate.h"

namespace ar_grpc::protocol {

// Where a transfer's bytes go.
struct TargetBuffer {
  uint8_t* into = nullptr;
  uint64_t size = 0;
  // Owns `into`, which may then be written until this is let go, also after a cancel. nullptr: the
  // memory is the caller's, who may take it back at any time (WriteGate).
  std::shared_ptr<void> keep;
};

// Runs a task in another thread, or at once where none is free. false: it was not taken and will
// not run, as no thread could be had.
using RunInPool = std::function<bool(std::function<void()> task)>;
// Memory for bytes on their way; nullptr where none is left.
using AllocateBounceBuffer = std::function<std::shared_ptr<uint8_t>(uint64_t size)>;

// Larger reads are left to the pool: the thread that received the offer polls for others.
inline constexpr uint64_t kReadHere = uint64_t{4} << 20;

struct OneSidedRead {
  std::shared_ptr<Link> link;
  Offer::Readable from;
  TargetBuffer target;
  std::shared_ptr<WriteGate> gate;
  RunInPool run_in_pool;           // may be empty
  AllocateBounceBuffer allocate;   // may be empty: plain memory
  int most_copiers = kMaxCopiers;  // threads that copy at the same time
  // Over a fabric that answers later: the size of an operation, and how many are under way.
  ChunkPlan parts{kLargestPartBytes, kFewestInFlight};
};

// Brings in the bytes; `done` gets the outcome once no operation is under way any more, on any
// thread, perhaps before this returns. kCancelled: the gate was closed. kUnavailable: the link
// ended. kResourceExhausted: this process cannot read the key, or has no memory for what comes.
//
// Over a connection with inline_get as many threads as are free copy parts straight into the
// target, under the gate. Over others a part may be written after the gate was closed: so it goes
// into memory that is kept until then, the target's or a bounce buffer that is copied under the
// gate.
void StartOneSidedRead(OneSidedRead read, std::function<void(const Status&)> done);

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_ONE_SIDED_READ_H_
