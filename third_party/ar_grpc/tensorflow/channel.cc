// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/channel.h"

#include "absl/strings/match.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "tensorflow/tsl/platform/errors.h"
#include "third_party/ar_grpc/grpc/channel_args.h"
#include "third_party/ar_grpc/grpc/keep_alive_mutator.h"
#include "third_party/ar_grpc/tensorflow/protocol_names.h"
#include "third_party/ar_grpc/tensorflow/runtime.h"

namespace ar_grpc {
namespace {

tsl::Status NewChannelWith(const std::string& host_port, const ::grpc::ChannelArguments& arguments,
                           tsl::SharedGrpcChannelPtr* channel) {
  // It refuses what is no host and port, in TensorFlow's own words.
  tsl::GrpcChannelSpec spec;
  TF_RETURN_IF_ERROR(spec.AddHostPortsJob("peer", {{0, host_port}}));
  *channel = ::grpc::CreateCustomChannel("dns:///" + host_port,
                                         ::grpc::InsecureChannelCredentials(), arguments);
  return tsl::OkStatus();
}

}  // namespace

void SetNode(const std::shared_ptr<protocol::Node>& node, ::grpc::ChannelArguments* arguments) {
  // Copied at once.
  arguments->SetPointerWithVtable(kNodeArg, const_cast<std::shared_ptr<protocol::Node>*>(&node),
                                  NodeArgVtable());
}

tsl::Status NewChannel(const std::shared_ptr<protocol::Node>& node, const std::string& host_port,
                       const tensorflow::RPCOptions* rpc_options,
                       tsl::SharedGrpcChannelPtr* channel) {
  ::grpc::ChannelArguments arguments = tsl::GetChannelArguments(rpc_options);
  SetNode(node, &arguments);
  return NewChannelWith(host_port, arguments, channel);
}

tsl::Status NewPlainChannel(const std::string& host_port, const tensorflow::RPCOptions* rpc_options,
                            tsl::SharedGrpcChannelPtr* channel) {
  ::grpc::ChannelArguments arguments = tsl::GetChannelArguments(rpc_options);
  SetKeepAlive(&arguments);
  return NewChannelWith(host_port, arguments, channel);
}

tsl::Status NewSessionChannel(const std::string& target, const tensorflow::RPCOptions* rpc_options,
                              tsl::SharedGrpcChannelPtr* channel) {
  const std::string host_port = HostPortOfTarget(target);
  return absl::StartsWith(target, kArScheme)
             ? NewChannel(SessionNode(), host_port, rpc_options, channel)
             : tsl::NewHostPortGrpcChannel(host_port, rpc_options, channel);
}

}  // namespace ar_grpc
