// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Of a port's table of GIDs, those by which peers are told to find it.

#include "third_party/ar_grpc/fabric/verbs/port_names.h"

#include "tests/verbs/pair.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr abi::Gid kLinkLocal = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
constexpr abi::Gid kIpv6 = {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
constexpr abi::Gid kIpv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1};
constexpr uint32_t kV1 = abi::kGidTypeRoceV1;
constexpr uint32_t kV2 = abi::kGidTypeRoceV2;

// As adapters have them: each address by either version; and another port's.
std::vector<abi::GidEntry> Table() {
  return {{kLinkLocal, 0, 1, kV1, 0}, {kLinkLocal, 1, 1, kV2, 0}, {kIpv4, 2, 1, kV1, 0},
          {kIpv4, 3, 1, kV2, 0},      {kIpv6, 4, 1, kV1, 0},      {kIpv6, 5, 1, kV2, 0},
          {kIpv4, 6, 2, kV2, 0},      {kIpv4, 256, 1, kV2, 0}};
}

abi::PortAttributes Port(uint8_t link_layer, uint16_t lid = 0) {
  abi::PortAttributes attributes = {};
  attributes.link_layer = link_layer;
  attributes.lid = lid;
  return attributes;
}

StatusOr<std::vector<NetworkName>> Names(
    const std::vector<abi::GidEntry>& table, int index = -1,
    const abi::PortAttributes& port = Port(abi::kLinkLayerEthernet)) {
  Settings settings;
  if (index >= 0) settings.gid_index = static_cast<uint8_t>(index);
  return PortNames(table, 1, port, "mlx5_0/1", settings);
}

// "family:index family:index"
std::string Text(const std::vector<NetworkName>& names) {
  std::string text;
  for (const NetworkName& name : names) {
    text += (text.empty() ? "" : " ") + std::to_string(static_cast<int>(name.family)) + ":" +
            std::to_string(name.index);
  }
  return text;
}

void Is(const std::vector<NetworkName>& names, const std::string& text) {
  Check(Text(names) == text, "got " + Text(names) + ", want " + text);
}

void PrefersV2() {
  Is(Value(Names(Table())), "1:3 2:5 3:0");
  Check(Value(Names(Table()))[0].gid == kIpv4, "a GID");
  std::vector<abi::GidEntry> table = Table();
  table.erase(table.begin() + 5);  // IPv6, but for the link-local one
  Is(Value(Names(table)), "1:3 2:1 3:0");
  Is(Value(Names({table[1]})), "2:1");
  // No v2 at all; the name that is made of the hardware address where there is one.
  Is(Value(Names({Table()[2], Table()[0]})), "3:0");
  Is(Value(Names({Table()[2]})), "3:2");
}

void TakesTheNamedOne() {
  Is(Value(Names(Table(), 0)), "3:0");
  Is(Value(Names(Table(), 1)), "2:1");
  Is(Value(Names(Table(), 3)), "1:3");
  for (const int index : {6, 7, 255}) {
    const Status status = Names(Table(), index).status();
    CheckCode(status, StatusCode::kUnavailable);
    Check(status.message() == "RDMA_GID_INDEX=" + std::to_string(index) +
                                  ": mlx5_0/1 has no GID there, only at 0, 1, 2, 3, 4, 5; "
                                  "correct it, or unset RDMA_GID_INDEX",
          "said: " + status.message());
  }
  CheckCode(Names({}, 0).status(), StatusCode::kUnavailable, "no GID there, and none elsewhere");
}

void NeedsAName() {
  CheckCode(Names({}).status(), StatusCode::kUnavailable, "give it an IP address");
  const std::vector<abi::GidEntry> table = {{kLinkLocal, 0, 1, abi::kGidTypeInfiniBand, 0}};
  Is(Value(Names(table, -1, Port(abi::kLinkLayerInfiniBand, 7))), "0:0");
  Is(Value(Names(table, 0, Port(abi::kLinkLayerUnspecified, 7))), "0:0");
  CheckCode(Names(table, -1, Port(abi::kLinkLayerInfiniBand)).status(), StatusCode::kUnavailable,
            "no subnet manager has given");
  CheckCode(Names({}, -1, Port(abi::kLinkLayerInfiniBand, 7)).status(), StatusCode::kUnavailable,
            "no subnet manager has given");
  CheckCode(Names(table).status(), StatusCode::kUnavailable, "no GID for RoCE");
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  PrefersV2();
  TakesTheNamedOne();
  NeedsAName();
  std::puts("ok port names");
}
