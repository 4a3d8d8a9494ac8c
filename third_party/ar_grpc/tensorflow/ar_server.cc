// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/ar_server.h"

#include <string>
#include <utility>
#include <vector>

#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_worker_cache.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_worker_service.h"
#include "tensorflow/core/distributed_runtime/rpc/rpc_rendezvous_mgr.h"
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
    : GrpcServer(server_def, tensorflow::Env::Default()),
      node_(std::move(node)),
      tensor_channel_(std::make_shared<ArTensorChannel>(node_)) {}

tensorflow::Status ArServer::Create(const tensorflow::ServerDef& server_def,
                                    std::shared_ptr<protocol::Node> node,
                                    tensorflow::DeviceMgr* local_device_mgr,
                                    std::unique_ptr<tensorflow::ServerInterface>* out_server) {
  std::unique_ptr<ArServer> server(new ArServer(server_def, std::move(node)));
  tensorflow::GrpcServerOptions options;
  options.rendezvous_mgr_func = [](const tensorflow::WorkerEnv* env) {
    return new tensorflow::RpcRendezvousMgr(env);
  };
  options.worker_func = [channel = server->tensor_channel_](tensorflow::WorkerEnv* env,
                                                            const tensorflow::ConfigProto& config) {
    std::unique_ptr<tensorflow::GrpcWorker> worker = tensorflow::NewGrpcWorker(env, config);
    worker->SetTensorChannel(channel);
    return worker;
  };
  options.compute_pool_func = ComputePoolFor;
  options.local_device_mgr = local_device_mgr;
  if (const tensorflow::Status status = server->Init(options); !status.ok()) {
    LOG(ERROR) << status;
    return status;
  }
  *out_server = std::move(server);
  return tensorflow::OkStatus();
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

tensorflow::Status ArServer::WorkerCacheFactory(
    const tensorflow::WorkerCacheFactoryOptions& options,
    tensorflow::WorkerCacheInterface** worker_cache) {
  // Made by Init just before its first call of this.
  grpc_worker_env()->tensor_channel = tensor_channel_;
  return GrpcServer::WorkerCacheFactory(options, worker_cache);
}

}  // namespace ar_grpc
