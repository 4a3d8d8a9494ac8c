// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/slice_cursor.h"

namespace ar_grpc {

void SliceCursor::Start(grpc_slice_buffer* slices) {
  slices_ = slices;
  index_ = 0;
  offset_ = 0;
}

int SliceCursor::Next(Parts* parts) const {
  size_t count = 0;
  size_t offset = offset_;
  for (size_t i = index_; i < slices_->count && count < kMostParts; ++i) {
    grpc_slice& slice = slices_->slices[i];
    if (GRPC_SLICE_LENGTH(slice) > offset) {
      (*parts)[count++] = {GRPC_SLICE_START_PTR(slice) + offset, GRPC_SLICE_LENGTH(slice) - offset};
    }
    offset = 0;
  }
  return static_cast<int>(count);
}

void SliceCursor::Advance(size_t bytes) {
  while (index_ < slices_->count) {
    const size_t rest = GRPC_SLICE_LENGTH(slices_->slices[index_]) - offset_;
    if (bytes < rest) break;
    bytes -= rest;
    ++index_;
    offset_ = 0;
  }
  offset_ += bytes;
}

}  // namespace ar_grpc
