// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_KEEP_ALIVE_MUTATOR_H_
#define THIRD_PARTY_AR_GRPC_GRPC_KEEP_ALIVE_MUTATOR_H_

#include <grpcpp/support/channel_arguments.h>

namespace ar_grpc {

// Asks for keep-alive probes (base/keep_alive.h) of the TCP connections of a channel, or of those
// that a server accepts: for connections without AR-gRPC, whose endpoints ask themselves.
void SetKeepAlive(::grpc::ChannelArguments* arguments);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_KEEP_ALIVE_MUTATOR_H_
