// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>

namespace ar_grpc::fabric::verbs {
namespace {

constexpr size_t kMostNames = 3;
constexpr uint8_t kMulticast = 0xff;      // a GID's first byte
constexpr uint8_t kMulticastIpv4 = 0xe0;  // an IPv4 address's first four bits
constexpr size_t kSubnetPrefix = 8;       // bytes of a GID
// A GID's bytes before its IPv4 address.
constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

std::string LayerName(uint8_t layer) {
  if (layer == kLinkLayerIwarp) return "iWARP";
  return layer == abi::kLinkLayerEthernet ? "Ethernet (RoCE)" : "InfiniBand";
}

// An address of one port, written as its family writes it.
bool Fits(const NetworkName& name) {
  const bool mapped = std::equal(kMapped.begin(), kMapped.end(), name.gid.begin());
  if (name.family == Family::kInfiniBand || name.family == Family::kRoceV1) {
    return name.gid[0] != kMulticast;
  }
  if (name.family == Family::kIpv6) return !mapped && name.gid[0] != kMulticast;
  return mapped && (name.gid[kMapped.size()] & 0xf0) != kMulticastIpv4;
}

Status Unreachable(const std::string& why) { return Status(StatusCode::kUnavailable, why); }

std::string Hex(uint16_t pkey) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "0x%04x", pkey);
  return text.data();
}

// kOk where two ports with these keys hear each other.
Status SamePartition(uint16_t own, uint16_t peer) {
  const std::string keys = "here " + Hex(own) + ", at the peer " + Hex(peer);
  if (((own ^ peer) & kPartition) != 0) {
    return Unreachable("the RDMA devices are in different partitions: " + keys);
  }
  if (((own | peer) & kFullMember) == 0) {
    return Unreachable("the RDMA devices are both limited members of their partition: " + keys);
  }
  return Status();
}

}  // namespace

std::string AddressText(const NetworkName& name) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool ipv4 = name.family == Family::kIpv4;
  inet_ntop(ipv4 ? AF_INET : AF_INET6, name.gid.data() + (ipv4 ? kMapped.size() : 0), text.data(),
            text.size());
  return text.data();
}

StatusOr<Route> FindRoute(const Address& own, const Address& peer) {
  if (own.link_layer != peer.link_layer) {
    return Unreachable("the RDMA device here is on " + LayerName(own.link_layer) +
                       ", the peer's on " + LayerName(peer.link_layer));
  }
  if (Status status = SamePartition(own.pkey, peer.pkey); !status.ok()) return status;
  for (const NetworkName& ours : own.names) {
    const auto same =
        std::find_if(peer.names.begin(), peer.names.end(),
                     [&ours](const NetworkName& theirs) { return theirs.family == ours.family; });
    if (same == peer.names.end()) continue;
    if (ours.family == Family::kInfiniBand &&
        !std::equal(ours.gid.begin(), ours.gid.begin() + kSubnetPrefix, same->gid.begin())) {
      return Unreachable("the peer's RDMA device is in another InfiniBand subnet");
    }
    return Route{ours, *same, peer.lid};
  }
  return Unreachable(
      own.link_layer == kLinkLayerIwarp
          ? "the RDMA devices here and at the peer have no IP family in common"
          : "the RDMA devices here and at the peer have no IP family and no version of RoCE in "
            "common");
}

void Encode(const Address& address, Writer* writer) {
  writer->Put(address.link_layer);
  writer->Put(address.lid);
  writer->Put(address.pkey);
  writer->Put(static_cast<uint8_t>(address.names.size()));
  for (const NetworkName& name : address.names) {
    writer->Put(static_cast<uint8_t>(name.family));
    writer->Put(name.gid);
  }
}

StatusOr<Address> DecodeAddress(Reader* reader) {
  const Status malformed(StatusCode::kInvalidArgument, "the peer's RDMA address is malformed");
  Address address;
  uint8_t count = 0;
  if (!reader->Get(&address.link_layer) || !reader->Get(&address.lid) ||
      !reader->Get(&address.pkey) || !reader->Get(&count)) {
    return malformed;
  }
  const bool iwarp = address.link_layer == kLinkLayerIwarp;
  const bool ethernet = address.link_layer == abi::kLinkLayerEthernet || iwarp;
  if (!ethernet && address.link_layer != abi::kLinkLayerInfiniBand) return malformed;
  // Without a LID no packet finds an InfiniBand port.
  if (!ethernet && address.lid == 0) return malformed;
  if ((address.pkey & kPartition) == 0) return malformed;
  if (count == 0 || count > kMostNames) return malformed;
  for (uint8_t i = 0; i < count; ++i) {
    uint8_t family = 0;
    NetworkName name;
    if (!reader->Get(&family) || !reader->Get(&name.gid)) return malformed;
    if (family > static_cast<uint8_t>(Family::kRoceV1)) return malformed;
    name.family = static_cast<Family>(family);
    if (ethernet == (name.family == Family::kInfiniBand) || !Fits(name)) return malformed;
    if (iwarp && name.family == Family::kRoceV1) return malformed;
    address.names.push_back(name);
  }
  return address;
}

}  // namespace ar_grpc::fabric::verbs
