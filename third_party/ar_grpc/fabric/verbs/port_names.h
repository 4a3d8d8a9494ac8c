// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_PORT_NAMES_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_PORT_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/address.h"
#include "third_party/ar_grpc/fabric/verbs/settings.h"

namespace ar_grpc::fabric::verbs {

// By which names others find a port, the preferred first, out of its device's table of GIDs: by
// RoCE v2 over IPv4, over IPv6, and by RoCE v1; or by InfiniBand. Only the one that the settings
// name, where they name one. kUnavailable says what the port, called `name` to people, lacks.
StatusOr<std::vector<NetworkName>> PortNames(const std::vector<abi::GidEntry>& table, uint8_t port,
                                             const abi::PortAttributes& attributes,
                                             const std::string& name, const Settings& settings);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_PORT_NAMES_H_
