// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_SERVER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_SERVER_H_

#include <memory>

#include "tensorflow/core/distributed_runtime/rpc/grpc_server_lib.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {

// TensorFlow's gRPC server with a way of its own for tensors. Without more, as here, its RPCs are
// stock gRPC's, and its TCP connections, those that it opens and those that it accepts, are probed:
// that a peer's host has died shows nowhere else while nothing is sent to it.
class TensorServer : public tensorflow::GrpcServer {
 public:
  TensorServer(const tensorflow::ServerDef& server_def, std::shared_ptr<TensorChannel> tensors);

  // As GrpcServer::Init, to be called once. `local_device_mgr` may be nullptr.
  tensorflow::Status InitFor(tensorflow::DeviceMgr* local_device_mgr);

 protected:
  virtual void SetOptions(tensorflow::GrpcServerOptions*) {}
  tensorflow::Status WorkerCacheFactory(const tensorflow::WorkerCacheFactoryOptions& options,
                                        tensorflow::WorkerCacheInterface** worker_cache) override;
  void MaybeMutateBuilder(::grpc::ServerBuilder* builder, int requested_port) override;
  tensorflow::ChannelCreationFunction GetChannelCreationFunction() const override;

 private:
  const std::shared_ptr<TensorChannel> tensors_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_SERVER_H_
