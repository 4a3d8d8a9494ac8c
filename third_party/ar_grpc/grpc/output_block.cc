// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/output_block.h"

#include <sys/mman.h>

namespace ar_grpc {
namespace {

// As upstream has it.
constexpr size_t kSmall = 1024;
// Few enough blocks in 4 GiB for the kernel's limit of mappings (65530, vm.max_map_count). What is
// not written of one takes no memory.
constexpr size_t kLarge = size_t{1} << 20;
constexpr size_t kLong = 64 * 1024;

}  // namespace

grpc_slice NewOutputBlock(size_t so_far) {
  if (so_far < kLong) return GRPC_SLICE_MALLOC(kSmall);
  void* const pages =
      mmap(nullptr, kLarge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return GRPC_SLICE_MALLOC(kSmall);
  return grpc_slice_new_with_len(pages, kLarge,
                                 [](void* unused, size_t size) { munmap(unused, size); });
}

}  // namespace ar_grpc
