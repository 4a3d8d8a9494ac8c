// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_AR_ENDPOINT_H_
#define THIRD_PARTY_AR_GRPC_GRPC_AR_ENDPOINT_H_

#include <grpc/support/port_platform.h>

#include <memory>

#include "src/core/lib/channel/channel_args.h"
#include "src/core/lib/iomgr/endpoint.h"
#include "src/core/lib/iomgr/pollset_set.h"
#include "third_party/ar_grpc/protocol/peers.h"

namespace ar_grpc {

// An endpoint whose bytes travel over `link`'s fabric, or over `tcp` where the link has none. TCP
// stays open underneath in both cases: when it dies, the peer has died.
//
// Takes `tcp` and registers the link with protocol::Peers until the endpoint is shut down. The
// link's descriptor joins `interested_parties`, which poll while the handshake's owner waits for
// HTTP/2's settings. nullptr when the descriptor table is full; then `tcp` is the caller's still.
grpc_endpoint* CreateEndpoint(std::shared_ptr<protocol::Link> link, grpc_endpoint* tcp,
                              grpc_pollset_set* interested_parties,
                              const grpc_core::ChannelArgs& args);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_AR_ENDPOINT_H_
