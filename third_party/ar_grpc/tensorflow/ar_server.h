// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_SERVER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_SERVER_H_

#include <memory>

#include "third_party/ar_grpc/protocol/node.h"
#include "third_party/ar_grpc/tensorflow/tensor_server.h"

namespace ar_grpc {

// A server of protocol `grpc+ar`: it has a node of its own, which its listening port, the channels
// that it opens, and its worker's transfers are of.
class ArServer final : public TensorServer {
 public:
  ArServer(const tensorflow::ServerDef& server_def, std::shared_ptr<protocol::Node> node);

 protected:
  void SetOptions(tensorflow::GrpcServerOptions* options) override;
  void MaybeMutateBuilder(::grpc::ServerBuilder* builder, int requested_port) override;
  tensorflow::ChannelCreationFunction GetChannelCreationFunction() const override;

 private:
  const std::shared_ptr<protocol::Node> node_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_SERVER_H_
