// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_FABRIC_ENDPOINT_H_
#define THIRD_PARTY_AR_GRPC_GRPC_FABRIC_ENDPOINT_H_

#include <grpc/support/port_platform.h>

#include <memory>

#include "src/core/lib/channel/channel_args.h"
#include "src/core/lib/iomgr/endpoint.h"
#include "src/core/lib/iomgr/pollset_set.h"
#include "third_party/ar_grpc/protocol/link.h"
#include "third_party/ar_grpc/protocol/node.h"

namespace ar_grpc {

// An endpoint whose bytes travel over `link`'s connection, which carries a stream. TCP stays open
// underneath. The parameters are those of CreateEndpoint (ar_endpoint.h).
grpc_endpoint* NewFabricEndpoint(std::shared_ptr<protocol::Node> node,
                                 std::shared_ptr<protocol::Link> link, grpc_endpoint* tcp,
                                 int wake_fd, grpc_pollset_set* interested_parties,
                                 const grpc_core::ChannelArgs& args);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_FABRIC_ENDPOINT_H_
