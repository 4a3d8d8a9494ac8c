// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_MPI_TENSOR_PEER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_MPI_TENSOR_PEER_H_

#include <memory>

#include "third_party/ar_grpc/mpi/channel.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {

// The receiver's side of an MpiTensorChannel. Before its first tensor it learns the peer's rank by
// a call, so ranks need not be the tasks' numbers, and watches the peer from then on.
std::shared_ptr<TensorPeer> NewMpiTensorPeer(mpi::Channel* channel,
                                             std::shared_ptr<const TensorCaller> caller);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_MPI_TENSOR_PEER_H_
