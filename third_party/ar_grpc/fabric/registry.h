// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_REGISTRY_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_REGISTRY_H_

#include <string>
#include <vector>

#include "third_party/ar_grpc/fabric/fabric.h"

// The fabrics that this build has, the preferred first.
namespace ar_grpc::fabric {

// gRPC's own TCP connection, which needs no Context: a channel stays on it where no fabric is left.
inline constexpr char kTcp[] = "tcp";

// Names in order of preference; kTcp is the last.
const std::vector<std::string>& KnownFabrics();

// nullptr for kTcp and for an unknown name.
Context* Find(const std::string& name);

// The fabrics that AR_GRPC_FABRICS allows, in the order in which they are to be tried: "shm,tcp"
// lists them, "^shm,verbs" is all but those, nullptr and "" are all. kInvalidArgument names the
// value and the known names.
StatusOr<std::vector<std::string>> ParseFabrics(const char* value);

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_REGISTRY_H_
