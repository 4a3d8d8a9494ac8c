// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_UNIQUE_RUN_GRAPH_REQUEST_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_UNIQUE_RUN_GRAPH_REQUEST_H_

#include "tensorflow/core/distributed_runtime/message_wrappers.h"
#include "third_party/ar_grpc/tensorflow/unique_id.h"

namespace ar_grpc {

// A RunGraph request that draws its own id instead of taking the caller's: `MasterSession` is the
// base wheel's code in the delta build, and its ids repeat.
template <typename Base>
class UniqueRunGraphRequest final : public Base {
 public:
  void set_request_id(int64_t) override { Base::set_request_id(UniqueId()); }
};

using UniqueInMemoryRunGraphRequest = UniqueRunGraphRequest<tensorflow::InMemoryRunGraphRequest>;
using UniqueProtoRunGraphRequest = UniqueRunGraphRequest<tensorflow::MutableProtoRunGraphRequest>;

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_UNIQUE_RUN_GRAPH_REQUEST_H_
