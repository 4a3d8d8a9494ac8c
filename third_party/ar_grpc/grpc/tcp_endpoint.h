// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_TCP_ENDPOINT_H_
#define THIRD_PARTY_AR_GRPC_GRPC_TCP_ENDPOINT_H_

#include <grpc/support/port_platform.h>

#include <memory>

#include "src/core/lib/iomgr/endpoint.h"
#include "third_party/ar_grpc/protocol/link.h"
#include "third_party/ar_grpc/protocol/node.h"

namespace ar_grpc {

// TCP as it is, known to the node, so that what is offered to the peer goes when the peer goes.
// Takes `tcp`. The link is taken off the node when the endpoint is shut down. Where it was retired
// by then, that is when the peer is back, or does not come back.
grpc_endpoint* NewTcpEndpoint(std::shared_ptr<protocol::Node> node,
                              std::shared_ptr<protocol::Link> link, grpc_endpoint* tcp);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_TCP_ENDPOINT_H_
