// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/tensor_server.h"

#include <utility>
#include <vector>

#include "grpcpp/impl/server_builder_option.h"
#include "grpcpp/impl/server_builder_plugin.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_worker_cache.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_worker_service.h"
#include "tensorflow/core/distributed_runtime/rpc/rpc_rendezvous_mgr.h"
#include "tensorflow/core/platform/errors.h"
#include "third_party/ar_grpc/grpc/keep_alive_mutator.h"
#include "third_party/ar_grpc/tensorflow/channel.h"
#include "third_party/ar_grpc/tensorflow/kept_workers.h"

namespace ar_grpc {
namespace {

class KeepAliveOption final : public ::grpc::ServerBuilderOption {
 public:
  void UpdateArguments(::grpc::ChannelArguments* arguments) override { SetKeepAlive(arguments); }
  void UpdatePlugins(std::vector<std::unique_ptr<::grpc::ServerBuilderPlugin>>*) override {}
};

}  // namespace

TensorServer::TensorServer(const tensorflow::ServerDef& server_def,
                           std::shared_ptr<TensorChannel> tensors)
    : GrpcServer(server_def, tensorflow::Env::Default()), tensors_(std::move(tensors)) {}

tensorflow::Status TensorServer::InitFor(tensorflow::DeviceMgr* local_device_mgr) {
  tensorflow::GrpcServerOptions options;
  options.rendezvous_mgr_func = [](const tensorflow::WorkerEnv* env) {
    return new tensorflow::RpcRendezvousMgr(env);
  };
  options.worker_func = [tensors = tensors_](tensorflow::WorkerEnv* env,
                                             const tensorflow::ConfigProto& config) {
    std::unique_ptr<tensorflow::GrpcWorker> worker = tensorflow::NewGrpcWorker(env, config);
    worker->SetTensorChannel(tensors);
    return worker;
  };
  options.local_device_mgr = local_device_mgr;
  SetOptions(&options);
  const tensorflow::Status status = Init(options);
  if (!status.ok()) LOG(ERROR) << status;
  return status;
}

tensorflow::Status TensorServer::WorkerCacheFactory(
    const tensorflow::WorkerCacheFactoryOptions& options,
    tensorflow::WorkerCacheInterface** worker_cache) {
  // Made by Init just before its first call of this.
  grpc_worker_env()->tensor_channel = tensors_;
  tensorflow::WorkerCacheInterface* made = nullptr;
  TF_RETURN_IF_ERROR(GrpcServer::WorkerCacheFactory(options, &made));
  *worker_cache = new KeptWorkers(std::unique_ptr<tensorflow::WorkerCacheInterface>(made));
  return tensorflow::OkStatus();
}

void TensorServer::MaybeMutateBuilder(::grpc::ServerBuilder* builder, int) {
  builder->SetOption(std::make_unique<KeepAliveOption>());
}

tensorflow::ChannelCreationFunction TensorServer::GetChannelCreationFunction() const {
  return tsl::ConvertToChannelCreationFunction(NewPlainChannel);
}

}  // namespace ar_grpc
