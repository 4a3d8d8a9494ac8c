// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_NAPS_H_
#define THIRD_PARTY_AR_GRPC_MPI_NAPS_H_

#include <algorithm>
#include <cstdint>

namespace ar_grpc::mpi {

// How long the progress thread rests before it lets MPI work again, in microseconds.
inline constexpr int64_t kForever = -1;

// What there is to wait for.
struct Waiting {
  bool somebody = false;  // transfers that end
  bool held = false;      // memory of ours or messages that MPI has, for which nobody waits
  bool owed = false;      // messages that nobody wants may still come, and their senders wait
};

// `quiet_us`: since something last moved.
inline int64_t Nap(const Waiting& waiting, int64_t quiet_us) {
  // What nobody here waits for any more, its peer may; one that has moved nothing for long is dead.
  if (waiting.somebody || (waiting.held && quiet_us < 5 * 1000 * 1000)) {
    // Without a pause at first: a change of threads takes longer than a small message.
    if (quiet_us < 50) return 0;
    // A nap of an eighth delays what comes by that part at most, and 50 µs are short beside a
    // chunk. After 0.25 s nothing large moves, and naps grow: a five-thousandth is little beside
    // that, and 1 ms, which they reach at 5 s, takes 2 % of a core.
    return std::clamp<int64_t>(quiet_us / 5000, std::min<int64_t>(quiet_us / 8, 50), 1000);
  }
  // What MPI told us is sent may be in a buffer of its own that only its next call writes out.
  if (quiet_us < 100 * 1000) return 1000;
  return waiting.held || waiting.owed ? 250 * 1000 : kForever;
}

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_NAPS_H_
