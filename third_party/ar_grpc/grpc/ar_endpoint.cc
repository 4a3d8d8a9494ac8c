// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/ar_endpoint.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/ar_grpc/base/keep_alive.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/grpc/fabric_endpoint.h"
#include "third_party/ar_grpc/grpc/tcp_endpoint.h"

namespace ar_grpc {

grpc_endpoint* CreateEndpoint(std::shared_ptr<protocol::Node> node,
                              std::shared_ptr<protocol::Link> link, grpc_endpoint* tcp, int wake_fd,
                              grpc_pollset_set* interested_parties,
                              const grpc_core::ChannelArgs& args) {
  // Also within a host, where it costs nothing: that host's kernel always answers.
  if (const Status status = KeepAlive(grpc_endpoint_get_fd(tcp)); !status.ok()) {
    Log(Severity::kWarning, absl::StrCat("if the host of ", link->address(),
                                         " dies, nobody here learns of it: ", status.message()));
  }
  node->AddLink(link);
  if (!link->carries_stream()) return NewTcpEndpoint(std::move(node), std::move(link), tcp);
  return NewFabricEndpoint(std::move(node), std::move(link), tcp, wake_fd, interested_parties,
                           args);
}

}  // namespace ar_grpc
