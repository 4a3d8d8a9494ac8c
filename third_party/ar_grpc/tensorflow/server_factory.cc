// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Registers the server protocol `grpc+ar`.

#include <memory>

#include "tensorflow/core/distributed_runtime/rpc/grpc_server_lib.h"
#include "tensorflow/core/distributed_runtime/server_lib.h"
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
    TF_RETURN_IF_ERROR(PrepareServer());
    return tensorflow::GrpcServer::Create(server_def, tensorflow::Env::Default(),
                                          options.local_device_mgr, out_server);
  }
};

// The registry owns its factories for the life of the process.
const bool registered = [] {
  tensorflow::ServerFactory::Register("AR_GRPC_SERVER", new ArServerFactory);
  return true;
}();

}  // namespace
}  // namespace ar_grpc
