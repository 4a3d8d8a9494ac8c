// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/collective_buffer.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "tensorflow/core/protobuf/transport_options.pb.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {
namespace {

thread_local const ScopedBufferGate* innermost = nullptr;

}  // namespace

ScopedBufferGate::ScopedBufferGate(std::shared_ptr<protocol::WriteGate> gate)
    : gate_(std::move(gate)), outer_(innermost) {
  innermost = this;
}

ScopedBufferGate::~ScopedBufferGate() { innermost = outer_; }

std::shared_ptr<protocol::WriteGate> ScopedBufferGate::Current() {
  return innermost == nullptr ? std::make_shared<protocol::WriteGate>() : innermost->gate_;
}

Status TakeBytes(const tensorflow::RecvBufRequest& request, protocol::WriteGate* gate,
                 tensorflow::RecvBufResponse* response) {
  if (!response->has_transport_options()) return Status();
  // What is none has no bytes.
  tensorflow::RecvBufRespExtra extra;
  (void)response->transport_options().UnpackTo(&extra);
  uint64_t size = 0;
  for (const std::string& part : extra.tensor_content()) size += part.size();
  const auto wanted = static_cast<uint64_t>(request.num_bytes());
  if (size != wanted) return WrongSize(size, wanted);
  if (!gate->BeginWrite()) return Status(StatusCode::kCancelled, "the receive was cancelled");
  auto* into = reinterpret_cast<char*>(request.buf_ptr());
  for (const std::string& part : extra.tensor_content()) {
    std::memcpy(into, part.data(), part.size());
    into += part.size();
  }
  gate->EndWrite();
  // Without options TensorFlow takes the bytes to be where buf_ptr says.
  response->clear_transport_options();
  return Status();
}

}  // namespace ar_grpc
