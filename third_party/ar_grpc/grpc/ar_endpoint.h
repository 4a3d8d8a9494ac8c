// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_AR_ENDPOINT_H_
#define THIRD_PARTY_AR_GRPC_GRPC_AR_ENDPOINT_H_

#include <grpc/support/port_platform.h>

#include <memory>

#include "src/core/lib/channel/channel_args.h"
#include "src/core/lib/iomgr/endpoint.h"
#include "src/core/lib/iomgr/pollset_set.h"
#include "third_party/ar_grpc/protocol/link.h"
#include "third_party/ar_grpc/protocol/node.h"

namespace ar_grpc {

// An endpoint whose bytes travel over `link`'s connection, or over `tcp` where that carries no
// stream. TCP stays open underneath in both cases: when it dies, the peer has died. It is asked for
// keep-alive (base/keep_alive.h), as a host that dies says nothing.
//
// Takes `tcp`, and `wake_fd`: a duplicate of the connection's wake_fd(), since gRPC closes it when
// its last poller has let go of it, which may be after the link; -1 without a stream. The link is
// one of `node`'s until the endpoint is shut down. The descriptor joins `interested_parties` (may
// be nullptr), which poll while the handshake's owner waits for HTTP/2's settings.
grpc_endpoint* CreateEndpoint(std::shared_ptr<protocol::Node> node,
                              std::shared_ptr<protocol::Link> link, grpc_endpoint* tcp, int wake_fd,
                              grpc_pollset_set* interested_parties,
                              const grpc_core::ChannelArgs& args);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_AR_ENDPOINT_H_
