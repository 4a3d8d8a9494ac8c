// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_COLLECTIVE_BUFFER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_COLLECTIVE_BUFFER_H_

#include <memory>

#include "tensorflow/core/protobuf/worker.pb.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/write_gate.h"

// The memory that a collective receives into: its own, where RecvBufRequest.buf_ptr says, and freed
// by a collective that gives up, with or without an end of the call that receives. So each writer
// of ours goes through a gate, which the collective's cancel closes (collectives.cc). The cancel by
// the call's CallOptions does not do: one that comes before the call has set its callback is lost.
namespace ar_grpc {

// Says whose buffer the receives are for that this thread begins while it is in the scope.
class ScopedBufferGate {
 public:
  explicit ScopedBufferGate(std::shared_ptr<protocol::WriteGate> gate);
  ~ScopedBufferGate();
  ScopedBufferGate(const ScopedBufferGate&) = delete;
  ScopedBufferGate& operator=(const ScopedBufferGate&) = delete;

  // The innermost scope's gate; a new one, open, where this thread is in none.
  static std::shared_ptr<protocol::WriteGate> Current();

 private:
  const std::shared_ptr<protocol::WriteGate> gate_;
  const ScopedBufferGate* const outer_;
};

// Moves the bytes that a response has, if it has any, to the collective's buffer. TensorFlow would
// do it after the call, by a Tensor that may be gone like its memory. kInternal: they are too many
// or too few; kCancelled: the gate is closed.
Status TakeBytes(const tensorflow::RecvBufRequest& request, protocol::WriteGate* gate,
                 tensorflow::RecvBufResponse* response);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_COLLECTIVE_BUFFER_H_
