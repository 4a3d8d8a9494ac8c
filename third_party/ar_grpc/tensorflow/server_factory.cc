// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Registers the server protocols.

#include <memory>
#include <utility>

#include "tensorflow/core/distributed_runtime/server_lib.h"
#include "tensorflow/core/platform/errors.h"
#include "third_party/ar_grpc/mpi/channel.h"
#include "third_party/ar_grpc/tensorflow/ar_server.h"
#include "third_party/ar_grpc/tensorflow/mpi_tensor_channel.h"
#include "third_party/ar_grpc/tensorflow/protocol_names.h"
#include "third_party/ar_grpc/tensorflow/runtime.h"

namespace ar_grpc {
namespace {

tensorflow::Status Init(std::unique_ptr<TensorServer> server,
                        const tensorflow::ServerFactory::Options& options,
                        std::unique_ptr<tensorflow::ServerInterface>* out_server) {
  TF_RETURN_IF_ERROR(server->InitFor(options.local_device_mgr));
  *out_server = std::move(server);
  return tensorflow::OkStatus();
}

class ArServerFactory : public tensorflow::ServerFactory {
 public:
  bool AcceptsOptions(const tensorflow::ServerDef& server_def) override {
    return server_def.protocol() == kArProtocol;
  }

  tensorflow::Status NewServer(const tensorflow::ServerDef& server_def, const Options& options,
                               std::unique_ptr<tensorflow::ServerInterface>* out_server) override {
    std::shared_ptr<protocol::Node> node;
    TF_RETURN_IF_ERROR(NewServerNode(&node));
    return Init(std::make_unique<ArServer>(server_def, std::move(node)), options, out_server);
  }
};

int TasksOf(const tensorflow::ServerDef& server_def) {
  int tasks = 0;
  for (const tensorflow::JobDef& job : server_def.cluster().job()) tasks += job.tasks_size();
  return tasks;
}

class MpiServerFactory : public tensorflow::ServerFactory {
 public:
  bool AcceptsOptions(const tensorflow::ServerDef& server_def) override {
    return server_def.protocol() == kMpiProtocol;
  }

  tensorflow::Status NewServer(const tensorflow::ServerDef& server_def, const Options& options,
                               std::unique_ptr<tensorflow::ServerInterface>* out_server) override {
    LogByTensorFlow();
    const StatusOr<mpi::Channel*> channel = mpi::Channel::Get();
    if (!channel.ok()) return ToTensorFlow(channel.status());
    TF_RETURN_IF_ERROR(ToTensorFlow((*channel)->Enough(TasksOf(server_def))));
    return Init(
        std::make_unique<TensorServer>(server_def, std::make_shared<MpiTensorChannel>(*channel)),
        options, out_server);
  }
};

// The registry owns its factories for the life of the process.
const bool registered = [] {
  tensorflow::ServerFactory::Register("AR_GRPC_SERVER", new ArServerFactory);
  tensorflow::ServerFactory::Register("AR_GRPC_MPI_SERVER", new MpiServerFactory);
  return true;
}();

}  // namespace
}  // namespace ar_grpc
