// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_RETIREMENT_H_
#define THIRD_PARTY_AR_GRPC_GRPC_RETIREMENT_H_

#include <grpc/support/port_platform.h>

#include <chrono>

#include "src/core/lib/channel/channel_args.h"

namespace ar_grpc {

// The arguments of a server's connection that is on TCP for a reason that may pass: gRPC ends it
// gracefully, when it is of this age and once its calls are done, and the next one tries the fabric
// again. A shorter age that the user set stays, and is what `age` says then. Only a server can do
// so: HTTP/2 has no word by which a client asks for a connection to be drained, and one that closed
// it would fail its own calls.
grpc_core::ChannelArgs WithRetirement(const grpc_core::ChannelArgs& args,
                                      std::chrono::milliseconds* age);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_RETIREMENT_H_
