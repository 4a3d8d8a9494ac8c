// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_SLICE_CURSOR_H_
#define THIRD_PARTY_AR_GRPC_GRPC_SLICE_CURSOR_H_

#include <grpc/slice_buffer.h>
#include <grpc/support/port_platform.h>
#include <sys/uio.h>

#include <array>
#include <cstddef>

namespace ar_grpc {

// How much of a gRPC buffer has been written. The buffer is the caller's, and does not change.
class SliceCursor {
 public:
  // Parts that are written at once, at most.
  static constexpr size_t kMostParts = 64;
  using Parts = std::array<iovec, kMostParts>;

  void Start(grpc_slice_buffer* slices);
  // Fills `parts` with what comes next, none of it empty, and returns how many there are; 0 once
  // all is written.
  int Next(Parts* parts) const;
  // So many bytes more have been written.
  void Advance(size_t bytes);

 private:
  grpc_slice_buffer* slices_ = nullptr;
  size_t index_ = 0;   // of the slice that is written next
  size_t offset_ = 0;  // in it
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_SLICE_CURSOR_H_
