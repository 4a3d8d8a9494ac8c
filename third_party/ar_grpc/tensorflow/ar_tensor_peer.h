// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_TENSOR_PEER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_TENSOR_PEER_H_

#include <memory>

#include "third_party/ar_grpc/protocol/node.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {

// The receiver's side of an ArTensorChannel of `node`. Nothing is asked for where no peer speaks
// AR-gRPC, nor for the memory of a device.
std::shared_ptr<TensorPeer> NewArTensorPeer(std::shared_ptr<protocol::Node> node,
                                            std::shared_ptr<const TensorCaller> caller);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_TENSOR_PEER_H_
