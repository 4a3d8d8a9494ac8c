// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/ar_server.h"

#include <string>
#include <utility>
#include <vector>

#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "third_party/ar_grpc/tensorflow/ar_tensor_channel.h"
#include "third_party/ar_grpc/tensorflow/channel.h"
#include "third_party/ar_grpc/tensorflow/compute_pool.h"

namespace ar_grpc {
namespace {

class NodeOption final : public ::grpc::ServerBuilderOption {
 public:
  explicit NodeOption(std::shared_ptr<protocol::Node> node) : node_(std::move(node)) {}
  void UpdateArguments(::grpc::ChannelArguments* arguments) override { SetNode(node_, arguments); }
  void UpdatePlugins(std::vector<std::unique_ptr<::grpc::ServerBuilderPlugin>>*) override {}

 private:
  const std::shared_ptr<protocol::Node> node_;
};

}  // namespace

ArServer::ArServer(const tensorflow::ServerDef& server_def, std::shared_ptr<protocol::Node> node)
    : TensorServer(server_def, std::make_shared<ArTensorChannel>(node)), node_(std::move(node)) {}

void ArServer::SetOptions(tensorflow::GrpcServerOptions* options) {
  options->compute_pool_func = ComputePoolFor;
}

void ArServer::MaybeMutateBuilder(::grpc::ServerBuilder* builder, int) {
  builder->SetOption(std::make_unique<NodeOption>(node_));
}

tensorflow::ChannelCreationFunction ArServer::GetChannelCreationFunction() const {
  return tsl::ConvertToChannelCreationFunction(
      [node = node_](std::string target, const tensorflow::RPCOptions* rpc_options,
                     tsl::SharedGrpcChannelPtr* channel) {
        return NewChannel(node, target, rpc_options, channel);
      });
}

}  // namespace ar_grpc
