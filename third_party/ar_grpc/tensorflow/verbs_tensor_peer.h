// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_VERBS_TENSOR_PEER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_VERBS_TENSOR_PEER_H_

#include <memory>

#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {

// The receiver's side of a VerbsTensorChannel. Before its first tensor the two ends connect by
// calls; a connection that has ended is made anew for the next tensor.
std::shared_ptr<TensorPeer> NewVerbsTensorPeer(fabric::Context* context,
                                               std::shared_ptr<const TensorCaller> caller);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_VERBS_TENSOR_PEER_H_
