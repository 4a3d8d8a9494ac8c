// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_BLOCK_CACHE_H_
#define THIRD_PARTY_AR_GRPC_GRPC_BLOCK_CACHE_H_

#include <cstddef>

namespace ar_grpc {

// Memory for read buffers that keeps its pages. A large message frees its buffers all at once;
// malloc then gives the pages back to the kernel and the next message faults every one in again,
// which costs more than the copy out of the socket.
//
// Blocks of one size class are kept for reuse. What was not needed for a whole second is returned
// to malloc, so an idle process keeps nothing. All functions are thread-safe.
class BlockCache {
 public:
  // Sizes that are kept: what gRPC reads large messages into (64 KiB and its header), no others.
  static constexpr size_t kSmallestKept = 64 * 1024;
  static constexpr size_t kLargestKept = 64 * 1024 + 256;

  // As malloc: `size` bytes, or nullptr when there is no memory.
  static void* Allocate(size_t size);
  // As free, for a block that Allocate gave; `size` is what was asked for.
  static void Free(void* block, size_t size);
  // Bytes that lie unused in the cache now.
  static size_t KeptBytes();
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_BLOCK_CACHE_H_
