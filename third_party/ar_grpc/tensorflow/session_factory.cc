// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Registers sessions whose target is `grpc+ar://host:port`, `grpc+mpi://` or `grpc+verbs://`.

#include "tensorflow/core/common_runtime/session_factory.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_session.h"
#include "tensorflow/core/public/session_options.h"
#include "third_party/ar_grpc/tensorflow/protocol_names.h"
#include "third_party/ar_grpc/tensorflow/runtime.h"

namespace ar_grpc {
namespace {

class ArSessionFactory : public tensorflow::SessionFactory {
 public:
  bool AcceptsOptions(const tensorflow::SessionOptions& options) override {
    return std::any_of(
        kOurSchemes.begin(), kOurSchemes.end(),
        [&options](absl::string_view scheme) { return absl::StartsWith(options.target, scheme); });
  }

  tensorflow::Status NewSession(const tensorflow::SessionOptions& options,
                                tensorflow::Session** out_session) override {
    // A session's own RPCs are stock gRPC's but where the target names grpc+ar.
    if (absl::StartsWith(options.target, kArScheme)) TF_RETURN_IF_ERROR(CheckClient());
    std::unique_ptr<tensorflow::GrpcSession> session;
    TF_RETURN_IF_ERROR(tensorflow::GrpcSession::Create(options, &session));
    *out_session = session.release();
    return tensorflow::OkStatus();
  }

  tensorflow::Status Reset(const tensorflow::SessionOptions& options,
                           const std::vector<std::string>& containers) override {
    return tensorflow::GrpcSession::Reset(options, containers);
  }
};

const bool registered = [] {
  tensorflow::SessionFactory::Register("AR_GRPC_SESSION", new ArSessionFactory);
  return true;
}();

}  // namespace
}  // namespace ar_grpc
