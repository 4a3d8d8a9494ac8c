// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_CHANNEL_ARGS_H_
#define THIRD_PARTY_AR_GRPC_GRPC_CHANNEL_ARGS_H_

#include <grpc/grpc.h>
#include <grpc/support/port_platform.h>

#include <memory>
#include <string>
#include <vector>

#include "src/core/lib/channel/channel_args.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/node.h"

// What turns AR-gRPC on for a channel or a server; each goes its own way. Without a node, or with
// kEnableArg 0, a channel says no hello and offers nothing, and a server does not look at the first
// bytes of a connection.
namespace ar_grpc {

// A pointer (NodeArg): the node whose links the connections become. Channels with different nodes
// share no connection.
inline constexpr char kNodeArg[] = "grpc.ar.node";
// An integer, 1 unless set; 0 turns it off.
inline constexpr char kEnableArg[] = "grpc.ar.enable";
// A text as AR_GRPC_FABRICS has it: which of the node's fabrics this channel or server may use.
inline constexpr char kFabricsArg[] = "grpc.ar.fabrics";
// The environment variable that says the same of all nodes.
inline constexpr char kFabricsVariable[] = "AR_GRPC_FABRICS";

// Points at `node`, which must live until gRPC has copied the argument, as it does when it makes
// the channel or the server (and grpc::ChannelArguments, at once).
grpc_arg NodeArg(const std::shared_ptr<protocol::Node>& node);
// Of NodeArg, for grpc::ChannelArguments::SetPointerWithVtable(kNodeArg, &node, NodeArgVtable()).
const grpc_arg_pointer_vtable* NodeArgVtable();

// The node of these arguments; nullptr where there is none, or AR-gRPC is off.
std::shared_ptr<protocol::Node> NodeOf(const grpc_core::ChannelArgs& args);

// Those of the node's fabrics that these arguments allow, in the order to be tried. With TLS one
// that crosses the network, where TLS does not cover it, is among them only if kFabricsArg names
// it. kInvalidArgument for a text that is none.
StatusOr<std::vector<std::string>> FabricsOf(const grpc_core::ChannelArgs& args,
                                             const protocol::Node& node);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_CHANNEL_ARGS_H_
