// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/poller_work.h"

#include <cstdint>

#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/tstring.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"

namespace ar_grpc {

bool EncodesOnPoller(const std::shared_ptr<protocol::Node>& node, bool is_dead,
                     const tensorflow::Tensor& tensor) {
  if (is_dead) return true;
  switch (tensor.dtype()) {
    case tensorflow::DT_VARIANT:
      // It may hold a list of any tensors, which does not show in its size.
      return false;
    case tensorflow::DT_STRING:
      // Every element is encoded, and looked at to learn its size.
      return static_cast<uint64_t>(tensor.NumElements()) * sizeof(tensorflow::tstring) <=
                 kLargestOnPoller &&
             tensor.TotalBytes() <= kLargestOnPoller;
    default:
      break;
  }
  if (tensor.TotalBytes() <= kLargestOnPoller) return true;
  if (!tensorflow::DataTypeCanUseMemcpy(tensor.dtype())) return false;
  // A message refers to the tensor's bytes, and so does an offer; only one outside of the arena may
  // have to be copied into it first (staged).
  const CpuArena* const arena = CpuArena::Get();
  return node == nullptr || arena == nullptr ||
         arena->Owns(tensor.tensor_data().data(), tensor.TotalBytes());
}

}  // namespace ar_grpc
