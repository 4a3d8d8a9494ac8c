// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ADDRESS_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ADDRESS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/base/wire.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"

namespace ar_grpc::fabric::verbs {

// How packets find a port: by the subnet of InfiniBand, by IP under RoCE v2 and iWARP, or by
// hardware addresses under RoCE v1, which do not leave their Ethernet segment.
enum class Family : uint8_t { kInfiniBand = 0, kIpv4 = 1, kIpv6 = 2, kRoceV1 = 3 };

// One name of a port in a network.
struct NetworkName {
  Family family = Family::kInfiniBand;
  abi::Gid gid{};
  uint8_t index = 0;  // in the port's own table; stays in this process
};

// A partition's key: its number, and in the highest bit whether this port is a full member. Ports
// hear each other within one partition, and two limited members never do.
inline constexpr uint16_t kDefaultPkey = 0xffff;
inline constexpr uint16_t kPartition = 0x7fff;
inline constexpr uint16_t kFullMember = 0x8000;

// None of the library's numbers: Ethernet, and iWARP's TCP over it.
inline constexpr uint8_t kLinkLayerIwarp = 3;

// Where a port is to be found.
struct Address {
  uint8_t link_layer = abi::kLinkLayerInfiniBand;
  uint16_t lid = 0;                // InfiniBand's
  uint16_t pkey = kDefaultPkey;    // of the partition that its queue pairs are in
  std::vector<NetworkName> names;  // the preferred first; each family once at most
};

// How one port reaches another.
struct Route {
  NetworkName own;
  NetworkName peer;
  uint16_t peer_lid = 0;
};

// An IP address as people write it, or another GID as one of IPv6.
std::string AddressText(const NetworkName& name);

// kUnavailable says in plain words why neither reaches the other.
StatusOr<Route> FindRoute(const Address& own, const Address& peer);

void Encode(const Address& address, Writer* writer);
// kInvalidArgument for anything that no Encode of this version made.
StatusOr<Address> DecodeAddress(Reader* reader);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ADDRESS_H_
