// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Registers the server protocol `grpc+ar`.

#include <memory>

#include "tensorflow/core/distributed_runtime/server_lib.h"
#include "third_party/ar_grpc/tensorflow/ar_server.h"
#include "third_party/ar_grpc/tensorflow/protocol_names.h"
#include "third_party/ar_grpc/tensorflow/runtime.h"

namespace ar_grpc {
namespace {

class ArServerFactory : public tensorflow::ServerFactory {
 public:
  bool AcceptsOptions(const tensorflow::ServerDef& server_def) override {
    return server_def.protocol() == kArProtocol;
  }

  tensorflow::Status NewServer(const tensorflow::ServerDef& server_def, const Options& options,
                               std::unique_ptr<tensorflow::ServerInterface>* out_server) override {
    std::shared_ptr<protocol::Node> node;
    TF_RETURN_IF_ERROR(NewServerNode(&node));
    return ArServer::Create(server_def, std::move(node), options.local_device_mgr, out_server);
  }
};

// The registry owns its factories for the life of the process.
const bool registered = [] {
  tensorflow::ServerFactory::Register("AR_GRPC_SERVER", new ArServerFactory);
  return true;
}();

}  // namespace
}  // namespace ar_grpc
