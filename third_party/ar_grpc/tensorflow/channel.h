// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_CHANNEL_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_CHANNEL_H_

#include <memory>
#include <string>

#include "grpcpp/support/channel_arguments.h"
#include "tensorflow/tsl/distributed_runtime/rpc/grpc_channel.h"
#include "tensorflow/tsl/platform/status.h"
#include "tensorflow/tsl/protobuf/rpc_options.pb.h"
#include "third_party/ar_grpc/protocol/node.h"

namespace ar_grpc {

// Turns AR on for a channel or a server of `node`.
void SetNode(const std::shared_ptr<protocol::Node>& node, ::grpc::ChannelArguments* arguments);

// As tsl::NewHostPortGrpcChannel, with AR on. InvalidArgument for what is no host and port.
// `rpc_options` may be nullptr.
tsl::Status NewChannel(const std::shared_ptr<protocol::Node>& node, const std::string& host_port,
                       const tensorflow::RPCOptions* rpc_options,
                       tsl::SharedGrpcChannelPtr* channel);

// As tsl::NewHostPortGrpcChannel, with keep-alive probes of its connections.
tsl::Status NewPlainChannel(const std::string& host_port, const tensorflow::RPCOptions* rpc_options,
                            tsl::SharedGrpcChannelPtr* channel);

// The channel of a session of this process to `target`, such as "grpc+ar://host:port". Where it
// names grpc+ar, AR is on: all of them are of one node, and so share connections.
tsl::Status NewSessionChannel(const std::string& target, const tensorflow::RPCOptions* rpc_options,
                              tsl::SharedGrpcChannelPtr* channel);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_CHANNEL_H_
