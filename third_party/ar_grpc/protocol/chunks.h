// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_CHUNKS_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_CHUNKS_H_

#include <cstdint>
#include <functional>

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc::protocol {

// Starts the transfer of [offset, offset + length); calls `done`, perhaps before it returns, on any
// thread. Only its first call counts.
using StartChunk =
    std::function<void(uint64_t offset, uint64_t length, std::function<void(Status)> done)>;

// Transfers `size` bytes in chunks of `chunk` bytes, at most `in_flight` of them at once. After
// the first error no chunk is started; `done` gets that error, once nothing is under way any more.
// `chunk` and `in_flight` are positive.
void TransferChunks(uint64_t size, uint64_t chunk, int in_flight, StartChunk start,
                    std::function<void(Status)> done);

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_CHUNKS_H_
