// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What ends tell each other over iWARP, from a peer or a stranger that means no good.

#include "third_party/ar_grpc/fabric/verbs/iwarp_frame.h"

#include <random>

#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/fabric/verbs/frame.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

const NetworkName kIpv4 = {Family::kIpv4, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1}};
const NetworkName kIpv6 = {Family::kIpv6, {0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9}};

Address Iwarp(const std::vector<NetworkName>& names) {
  Address address;
  address.link_layer = kLinkLayerIwarp;
  address.names = names;
  return address;
}

IwarpInvitation SomeInvitation() {
  IwarpInvitation invitation;
  invitation.seal = 0x123456789abcdef;
  invitation.reads = {16, 3};
  for (size_t i = 0; i < invitation.token.size(); ++i) invitation.token[i] = 10 + i;
  invitation.address = Iwarp({kIpv4, kIpv6});
  invitation.ports = {7471, 65535};
  return invitation;
}

void ReadsWhatItWrote() {
  const IwarpInvitation written = SomeInvitation();
  const std::string frame = Encode(written);
  Check(frame.size() <= kLargestAttachFrame, "the frame is too long");
  const IwarpInvitation read = Value(DecodeInvitation(frame));
  Check(read.seal == written.seal && read.token == written.token, "seal or token");
  Check(read.reads.most == 16 && read.reads.most_served == 3, "the depths");
  Check(read.ports == written.ports && read.address.names.size() == 2, "where it listens");
  Check(read.address.names[1].gid == kIpv6.gid, "the second address");
  // A request's private data may come filled up.
  const std::string data = Encode(IwarpIntroduction{written.token, {16, 3}});
  Check(data.size() <= 56, "more than each device carries in a request");
  for (const std::string& filled : {data, data + std::string(30, '\0')}) {
    const IwarpIntroduction shown = Value(DecodeIntroduction(filled));
    Check(shown.token == written.token && shown.reads.most_served == 3, "what is shown");
  }
  Check(Value(DecodeConnected(ConnectedFrame(UINT64_MAX))) == UINT64_MAX, "the client's seal");
}

template <typename Decode>
void CutOrLonger(const std::string& frame, Decode decode) {
  for (size_t size = 0; size < frame.size(); ++size) {
    CheckCode(decode(frame.substr(0, size)).status(), StatusCode::kInvalidArgument);
  }
  CheckCode(decode(frame + "x").status(), StatusCode::kInvalidArgument);
}

void RefusesOthers() {
  CutOrLonger(Encode(SomeInvitation()), DecodeInvitation);
  CutOrLonger(ConnectedFrame(7), DecodeConnected);
  const std::string data = Encode(IwarpIntroduction{});
  for (size_t size = 0; size < data.size(); ++size) {
    CheckCode(DecodeIntroduction(data.substr(0, size)).status(), StatusCode::kInvalidArgument);
  }
  CheckCode(DecodeIntroduction(data.substr(1) + "x").status(), StatusCode::kInvalidArgument);
  const auto refused = [](const IwarpInvitation& invitation) {
    CheckCode(DecodeInvitation(Encode(invitation)).status(), StatusCode::kInvalidArgument);
  };
  IwarpInvitation one = SomeInvitation();
  one.ports[1] = 0;
  refused(one);
  one = SomeInvitation();
  one.address.link_layer = abi::kLinkLayerEthernet;
  refused(one);
  one = SomeInvitation();
  one.address.names[1] = {Family::kRoceV1, {0xfe, 0x80}};
  refused(one);
  one = SomeInvitation();
  one.address.names[0].gid[12] = 0xe0;  // multicast
  refused(one);
  std::mt19937 random(3);
  const std::string frame = Encode(SomeInvitation());
  for (int round = 0; round < 100000; ++round) {
    std::string bytes = frame;
    for (int i = 0; i < 4; ++i) bytes[random() % bytes.size()] = static_cast<char>(random());
    const auto invitation = DecodeInvitation(bytes);
    if (!invitation.ok()) continue;
    Check(invitation->ports.size() == invitation->address.names.size(), "as many ports as names");
    for (const uint16_t port : invitation->ports) Check(port != 0, "no port");
  }
}

// A device of iWARP reaches no other kind, and the words say which is where.
void FindsRoutes() {
  const Route route = Value(FindRoute(Iwarp({kIpv4, kIpv6}), Iwarp({kIpv6})));
  Check(route.peer.family == Family::kIpv6 && route.peer.gid == kIpv6.gid, "the common family");
  CheckCode(FindRoute(Iwarp({kIpv4}), Iwarp({kIpv6})).status(), StatusCode::kUnavailable,
            "here and at the peer have no IP family in common");
  Address roce = Iwarp({kIpv4});
  roce.link_layer = abi::kLinkLayerEthernet;
  CheckCode(FindRoute(Iwarp({kIpv4}), roce).status(), StatusCode::kUnavailable,
            "the RDMA device here is on iWARP, the peer's on Ethernet (RoCE)");
  CheckCode(FindRoute(roce, Iwarp({kIpv4})).status(), StatusCode::kUnavailable,
            "the RDMA device here is on Ethernet (RoCE), the peer's on iWARP");
  CheckCode(DecodeBrochure(EncodeBrochure(Iwarp({kIpv4}))).status(), StatusCode::kOk);
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  ReadsWhatItWrote();
  RefusesOthers();
  FindsRoutes();
  std::puts("ok iwarp frames");
}
