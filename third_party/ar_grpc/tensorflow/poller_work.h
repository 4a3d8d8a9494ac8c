// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_POLLER_WORK_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_POLLER_WORK_H_

#include <cstddef>

#include "tensorflow/core/distributed_runtime/tensor_coding.h"
#include "tensorflow/core/framework/tensor.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {

// What a poller's thread may copy or encode itself, in bytes; more goes to a pool. A poller serves
// many connections, which wait meanwhile, and 64 KiB take about as long as waking another thread.
inline constexpr size_t kLargestOnPoller = 64 * 1024;

// Whether the response to a RecvTensor request with `tensor` is made by `channel` in little time
// whatever its size: because it is small, or its bytes are referred to and not copied.
bool EncodesOnPoller(const TensorChannel& channel, bool is_dead, const tensorflow::Tensor& tensor);

// Whether parsing `response` may wait until memory is freed: then no poller's thread may parse it.
// TensorFlow's pools of memory wait for up to ten seconds (bfc_allocator.cc); the default allocator
// of CPUs fails at once. `response` must know its device (TensorResponse::InitAlloc).
bool MayWaitForMemory(const tensorflow::TensorResponse& response);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_POLLER_WORK_H_
