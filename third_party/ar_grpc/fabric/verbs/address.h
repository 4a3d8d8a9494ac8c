// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ADDRESS_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ADDRESS_H_

#include <cstdint>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/base/wire.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"

namespace ar_grpc::fabric::verbs {

// How packets find a port: by the subnet of InfiniBand, or by IP under RoCE v2.
enum class Family : uint8_t { kInfiniBand = 0, kIpv4 = 1, kIpv6 = 2 };

// One name of a port in a network.
struct NetworkName {
  Family family = Family::kInfiniBand;
  abi::Gid gid{};
  uint8_t index = 0;  // in the port's own table; stays in this process
};

// Where a port is to be found.
struct Address {
  uint8_t link_layer = abi::kLinkLayerInfiniBand;
  uint16_t lid = 0;                // InfiniBand's
  std::vector<NetworkName> names;  // the preferred first; each family once at most
};

// How one port reaches another.
struct Route {
  uint8_t own_index = 0;
  NetworkName peer;
  uint16_t peer_lid = 0;
};

// kUnavailable says in plain words why neither reaches the other.
StatusOr<Route> FindRoute(const Address& own, const Address& peer);

void Encode(const Address& address, Writer* writer);
// kInvalidArgument for anything that no Encode of this version made.
StatusOr<Address> DecodeAddress(Reader* reader);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ADDRESS_H_
