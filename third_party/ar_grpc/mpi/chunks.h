// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_CHUNKS_H_
#define THIRD_PARTY_AR_GRPC_MPI_CHUNKS_H_

#include <cstdint>

namespace ar_grpc::mpi {

// How many bytes go into one message of MPI's, whose counts are ints. Both ends must agree, so it
// is no setting. Between two messages lie some 50 µs, which is little beside the time of one, and
// what a cancelled transfer still holds is one message.
inline constexpr uint64_t kChunkBytes = 64 << 20;

// A transfer as messages: all are full but the last, which never is. So a receiver sees by a
// message's size alone whether the sender means this to be the end, and a sender with more or fewer
// bytes than expected shows. A multiple of `limit` therefore ends with an empty message.
struct Chunks {
  uint64_t size;
  uint64_t limit;

  uint64_t count() const { return size / limit + 1; }
  uint64_t offset(uint64_t chunk) const { return chunk * limit; }
  uint64_t bytes(uint64_t chunk) const { return chunk + 1 < count() ? limit : size % limit; }
};

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_CHUNKS_H_
