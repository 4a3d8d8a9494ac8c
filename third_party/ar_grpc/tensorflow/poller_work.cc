// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/poller_work.h"

#include <cstdint>

#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/tstring.h"
#include "tensorflow/tsl/framework/allocator.h"

namespace ar_grpc {

bool EncodesOnPoller(const TensorChannel& channel, bool is_dead, const tensorflow::Tensor& tensor) {
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
  return tensorflow::DataTypeCanUseMemcpy(tensor.dtype()) && !channel.MayTakeLong(tensor);
}

bool MayWaitForMemory(const tensorflow::TensorResponse& response) {
  // The tensor's own allocator is private to the response, so the device's default one is asked
  // for. A device whose default is not a CPU's, as a GPU, has pools for its memory and for the
  // host's that it copies from.
  tensorflow::DeviceBase* const device = response.device();
  return device == nullptr ||
         device->GetAllocator(tensorflow::AllocatorAttributes()) != tsl::cpu_allocator_base();
}

}  // namespace ar_grpc
