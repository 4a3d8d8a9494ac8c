// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/handshake_tcp.h"

#include <grpc/support/alloc.h>

#include <climits>
#include <utility>

#include "src/core/lib/slice/slice.h"

namespace ar_grpc {

std::string TakeBytes(grpc_slice_buffer* buffer) {
  std::string bytes;
  for (size_t i = 0; i < buffer->count; ++i) {
    bytes.append(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(buffer->slices[i])),
                 GRPC_SLICE_LENGTH(buffer->slices[i]));
  }
  grpc_slice_buffer_reset_and_unref(buffer);
  return bytes;
}

HandshakeRemains::~HandshakeRemains() {
  if (endpoint_ != nullptr) grpc_endpoint_destroy(endpoint_);
  if (buffer_ == nullptr) return;
  grpc_slice_buffer_destroy(buffer_);
  gpr_free(buffer_);
}

void HandshakeRemains::Take(grpc_core::HandshakerArgs* args, grpc_error_handle why) {
  if (args->endpoint != nullptr) grpc_endpoint_shutdown(args->endpoint, why);
  endpoint_ = std::exchange(args->endpoint, nullptr);
  buffer_ = std::exchange(args->read_buffer, nullptr);
  args->args = grpc_core::ChannelArgs();
}

HandshakeTcp::HandshakeTcp() {
  grpc_slice_buffer_init(&outgoing_);
  grpc_slice_buffer_init(&incoming_);
}

HandshakeTcp::~HandshakeTcp() {
  grpc_slice_buffer_destroy(&outgoing_);
  grpc_slice_buffer_destroy(&incoming_);
}

void HandshakeTcp::Reset() {
  unsent_.clear();
  if (!reading_) grpc_slice_buffer_reset_and_unref(&incoming_);
}

void HandshakeTcp::Send(grpc_endpoint* endpoint, grpc_closure* sent) {
  sending_ = true;
  grpc_slice_buffer_reset_and_unref(&outgoing_);
  grpc_slice_buffer_add(&outgoing_, grpc_slice_from_cpp_string(std::exchange(unsent_, {})));
  grpc_endpoint_write(endpoint, &outgoing_, sent, nullptr, INT_MAX);
}

void HandshakeTcp::Receive(grpc_endpoint* endpoint, grpc_closure* received) {
  reading_ = true;
  grpc_endpoint_read(endpoint, &incoming_, received, /*urgent=*/true, /*min_progress_size=*/1);
}

std::string HandshakeTcp::TakeReceived() {
  reading_ = false;
  return TakeBytes(&incoming_);
}

}  // namespace ar_grpc
