// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_NEW_HANDSHAKER_H_
#define THIRD_PARTY_AR_GRPC_GRPC_NEW_HANDSHAKER_H_

#include <grpc/support/port_platform.h>

#include <memory>

#include "src/core/lib/gprpp/ref_counted_ptr.h"
#include "src/core/lib/iomgr/pollset_set.h"
#include "src/core/lib/transport/handshaker.h"
#include "third_party/ar_grpc/protocol/link.h"
#include "third_party/ar_grpc/protocol/node.h"

namespace ar_grpc {

// What says hello, or answers one, on a connection of `node`'s. The interested parties poll the
// connection and must live until the handshake has ended.
grpc_core::RefCountedPtr<grpc_core::Handshaker> NewHandshaker(protocol::End end,
                                                              std::shared_ptr<protocol::Node> node,
                                                              grpc_pollset_set* interested_parties);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_NEW_HANDSHAKER_H_
