// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/port_names.h"

#include <algorithm>
#include <initializer_list>

namespace ar_grpc::fabric::verbs {
namespace {

Status Unusable(const std::string& why) { return Status(StatusCode::kUnavailable, why); }

bool HasPrefix(const abi::Gid& gid, std::initializer_list<uint8_t> prefix) {
  return std::equal(prefix.begin(), prefix.end(), gid.begin());
}

// ::ffff:a.b.c.d
bool IsIpv4(const abi::Gid& gid) {
  return HasPrefix(gid, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff});
}

bool IsLinkLocal(const abi::Gid& gid) { return HasPrefix(gid, {0xfe, 0x80}); }

// Which family a RoCE port's entry is of, and how much it is preferred to others of it: a name of
// v1 that is made of the hardware address leads there without asking the network, and one of v2
// that is link-local leads nowhere else.
Family RoceFamily(const abi::GidEntry& entry) {
  if (entry.type == abi::kGidTypeRoceV1) return Family::kRoceV1;
  return IsIpv4(entry.gid) ? Family::kIpv4 : Family::kIpv6;
}
bool Preferred(const abi::GidEntry& entry) {
  return IsLinkLocal(entry.gid) == (RoceFamily(entry) == Family::kRoceV1);
}

// Of a RoCE port's names the best of each family: IPv4, IPv6, v1.
std::vector<NetworkName> RoceNames(const std::vector<abi::GidEntry>& entries) {
  std::vector<NetworkName> names;
  for (const Family family : {Family::kIpv4, Family::kIpv6, Family::kRoceV1}) {
    const abi::GidEntry* best = nullptr;
    for (const abi::GidEntry& entry : entries) {
      if (entry.type != abi::kGidTypeRoceV1 && entry.type != abi::kGidTypeRoceV2) continue;
      if (RoceFamily(entry) != family) continue;
      if (best == nullptr || (Preferred(entry) && !Preferred(*best))) best = &entry;
    }
    if (best != nullptr) names.push_back({family, best->gid, static_cast<uint8_t>(best->index)});
  }
  return names;
}

}  // namespace

StatusOr<std::vector<NetworkName>> PortNames(const std::vector<abi::GidEntry>& table, uint8_t port,
                                             const abi::PortAttributes& attributes,
                                             const std::string& name, const Settings& settings) {
  std::vector<abi::GidEntry> entries;
  std::string indexes;
  for (const abi::GidEntry& entry : table) {
    // A queue pair's address has eight bits for the index.
    if (entry.port != port || entry.index > UINT8_MAX) continue;
    indexes += (indexes.empty() ? "only at " : ", ") + std::to_string(entry.index);
    if (entry.index == settings.gid_index.value_or(entry.index)) entries.push_back(entry);
  }
  if (settings.gid_index.has_value() && entries.empty()) {
    return WrongSetting(
        kGidIndexVariable, std::to_string(*settings.gid_index),
        name + " has no GID there, " + (indexes.empty() ? "and none elsewhere" : indexes));
  }
  if (attributes.link_layer == abi::kLinkLayerEthernet) {
    std::vector<NetworkName> names = RoceNames(entries);
    if (names.empty()) return Unusable("its port has no GID for RoCE: give it an IP address");
    return names;
  }
  if (attributes.lid == 0 || entries.empty()) {
    return Unusable("no subnet manager has given its port a LID and a GID");
  }
  const abi::GidEntry& first = entries.front();
  return std::vector<NetworkName>{
      {Family::kInfiniBand, first.gid, static_cast<uint8_t>(first.index)}};
}

}  // namespace ar_grpc::fabric::verbs
