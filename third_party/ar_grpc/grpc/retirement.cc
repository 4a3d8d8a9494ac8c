// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/retirement.h"

#include <grpc/impl/codegen/grpc_types.h>

#include <climits>

namespace ar_grpc {

grpc_core::ChannelArgs WithRetirement(const grpc_core::ChannelArgs& args,
                                      std::chrono::milliseconds* age) {
  const absl::optional<int> users = args.GetInt(GRPC_ARG_MAX_CONNECTION_AGE_MS);
  if (users.has_value() && *users <= age->count()) {
    *age = std::chrono::milliseconds(*users);
    return args;
  }
  return args.Set(GRPC_ARG_MAX_CONNECTION_AGE_MS, static_cast<int>(age->count()))
      .Set(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, INT_MAX);
}

}  // namespace ar_grpc
