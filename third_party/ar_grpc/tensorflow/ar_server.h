// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_SERVER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_SERVER_H_

#include <memory>

#include "tensorflow/core/distributed_runtime/rpc/grpc_server_lib.h"
#include "third_party/ar_grpc/protocol/node.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {

// A server of protocol `grpc+ar`: TensorFlow's gRPC server with a node of its own, which its
// listening port, the channels that it opens, and its worker's transfers are of.
class ArServer final : public tensorflow::GrpcServer {
 public:
  // As GrpcServer::Create. `local_device_mgr` may be nullptr.
  static tensorflow::Status Create(const tensorflow::ServerDef& server_def,
                                   std::shared_ptr<protocol::Node> node,
                                   tensorflow::DeviceMgr* local_device_mgr,
                                   std::unique_ptr<tensorflow::ServerInterface>* out_server);

 protected:
  void MaybeMutateBuilder(::grpc::ServerBuilder* builder, int requested_port) override;
  tensorflow::ChannelCreationFunction GetChannelCreationFunction() const override;
  tensorflow::Status WorkerCacheFactory(const tensorflow::WorkerCacheFactoryOptions& options,
                                        tensorflow::WorkerCacheInterface** worker_cache) override;

 private:
  ArServer(const tensorflow::ServerDef& server_def, std::shared_ptr<protocol::Node> node);

  const std::shared_ptr<protocol::Node> node_;
  const std::shared_ptr<TensorChannel> tensor_channel_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_SERVER_H_
