// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Frames, brochures and keys from a peer that means no good: nothing is read past their end, and
// what is taken has its numbers in their ranges.

#include "third_party/ar_grpc/fabric/verbs/frame.h"

#include <random>
#include <vector>

#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/fabric/verbs/remote_key.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr uint64_t kSeal = 0x123456789abcdef;

Address Ethernet() {
  Address address;
  address.link_layer = abi::kLinkLayerEthernet;
  address.names = {
      {Family::kIpv4, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 1}, 1},
      {Family::kIpv6, {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}, 0},
  };
  return address;
}

Address RoceV1() {
  Address address;
  address.link_layer = abi::kLinkLayerEthernet;
  address.names = {{Family::kRoceV1, {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 2, 2, 3, 4, 5, 6, 7, 8}, 4}};
  return address;
}

Address InfiniBand() {
  Address address;
  address.lid = 7;
  address.names = {{Family::kInfiniBand, {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 1}, 0}};
  return address;
}

Hello SomeHello() {
  Hello hello;
  hello.number = 17;
  hello.first_psn = 0xffffff;
  hello.seal = kSeal;
  hello.mtu = abi::kLargestMtu;
  hello.most_reads = 16;
  hello.most_served_reads = 1;
  hello.address = Ethernet();
  return hello;
}

void CheckAddress(const Address& address) {
  const bool ethernet =
      address.link_layer == abi::kLinkLayerEthernet || address.link_layer == kLinkLayerIwarp;
  Check(ethernet || address.link_layer == abi::kLinkLayerInfiniBand, "a link layer");
  Check(address.names.size() >= 1 && address.names.size() <= 3, "as many names");
  Check((address.pkey & kPartition) != 0, "no partition");
  for (const NetworkName& name : address.names) {
    Check(ethernet != (name.family == Family::kInfiniBand), "a family of another link layer");
    Check(name.gid[0] != 0xff, "a multicast address");
  }
}

// Takes whatever a decoder takes, and looks at what that is.
void TakeHello(const std::string& bytes) {
  const StatusOr<Hello> hello = DecodeHello(bytes);
  if (!hello.ok()) return CheckCode(hello.status(), StatusCode::kInvalidArgument);
  Check(hello->number > 0 && hello->number < 1 << 24 && hello->first_psn < 1 << 24, "24 bits");
  Check(hello->mtu >= abi::kSmallestMtu && hello->mtu <= abi::kLargestMtu, "an MTU");
  CheckAddress(hello->address);
}

void TakeBrochure(const std::string& bytes) {
  const StatusOr<Address> address = DecodeBrochure(bytes);
  if (!address.ok()) return CheckCode(address.status(), StatusCode::kInvalidArgument);
  CheckAddress(*address);
}

void TakeKey(const std::string& bytes) {
  const StatusOr<RemoteKey> key = DecodeKey(bytes, kSeal);
  if (!key.ok()) return CheckCode(key.status(), StatusCode::kInvalidArgument);
  Check(key->address <= UINT64_MAX - key->size, "beyond the address space");
}

// All that is shorter, longer, or has wrong bytes. From the heap, where a byte too far is seen.
void Torment(const std::string& sound, void (*take)(const std::string&)) {
  take(sound);
  for (size_t size = 0; size < sound.size(); ++size) {
    take(std::string(sound.data(), size));
  }
  take(sound + std::string(1, '\0'));
  std::mt19937 random(3);
  for (int round = 0; round < 100000; ++round) {
    std::string bytes = sound;
    for (unsigned i = 0; i <= random() % 4; ++i) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (round % 5 == 0) bytes.resize(random() % (sound.size() + 8));
    take(bytes);
  }
}

void ReadsWhatItWrote() {
  const Hello hello = Value(DecodeHello(Encode(SomeHello())));
  Check(hello.number == 17 && hello.first_psn == 0xffffff && hello.seal == kSeal, "numbers");
  Check(hello.mtu == abi::kLargestMtu && hello.most_reads == 16, "limits");
  Check(hello.most_served_reads == 1 && hello.address.names.size() == 2, "the rest");
  for (Address address : {Ethernet(), InfiniBand(), RoceV1()}) {
    address.pkey = 0x1234;
    const Address read = Value(DecodeBrochure(EncodeBrochure(address)));
    Check(read.lid == address.lid && read.names.size() == address.names.size(), "an address");
    Check(read.names[0].gid == address.names[0].gid, "a GID");
    Check(read.names[0].family == address.names[0].family && read.pkey == 0x1234, "a key");
  }
  RemoteKey key;
  key.registration_id = UINT64_MAX;
  key.address = uint64_t{1} << 47;
  key.size = uint64_t{1} << 40;
  key.rkey = UINT32_MAX;
  key.access = Access::kWrite;
  const Key written = Encode(key, kSeal);
  const RemoteKey read = Value(DecodeKey(written, kSeal));
  Check(read.address == key.address && read.size == key.size && read.rkey == key.rkey, "a key");
  Check(read.access == Access::kWrite && written.size() <= kLargestKey, "a key's rest");
  CheckCode(DecodeKey(written, kSeal + 1).status(), StatusCode::kInvalidArgument);
}

void FindsRoutes() {
  Address infiniband = InfiniBand();
  CheckCode(FindRoute(Ethernet(), infiniband).status(), StatusCode::kUnavailable, "the peer's on");
  infiniband.names[0].gid[7] = 1;
  CheckCode(FindRoute(InfiniBand(), infiniband).status(), StatusCode::kUnavailable, "subnet");
  Address ipv6 = Ethernet();
  ipv6.names.erase(ipv6.names.begin());
  const Route route = Value(FindRoute(Ethernet(), ipv6));
  Check(route.own.index == 0 && route.peer.family == Family::kIpv6, "not by IPv6");
  Address ipv4 = Ethernet();
  ipv4.names.pop_back();
  Check(Value(FindRoute(Ethernet(), ipv4)).own.index == 1, "not by IPv4");
  CheckCode(FindRoute(ipv4, ipv6).status(), StatusCode::kUnavailable, "no IP family and no");
  // By v1 where there is no v2 in common.
  CheckCode(FindRoute(ipv6, RoceV1()).status(), StatusCode::kUnavailable, "no version of RoCE");
  Address all = Ethernet();
  all.names.push_back(RoceV1().names[0]);
  const Route v1 = Value(FindRoute(all, RoceV1()));
  Check(v1.own.index == 4 && v1.peer.family == Family::kRoceV1, "not by RoCE v1");
  Check(Value(FindRoute(all, all)).peer.family == Family::kIpv4, "not by IPv4 first");
}

void KeepsPartitionsApart() {
  struct Case {
    uint16_t own;
    uint16_t peer;
    const char* says;  // empty: they hear each other
  };
  for (const Case& one : std::vector<Case>{
           {0xffff, 0xffff, ""},
           {0xffff, 0x7fff, ""},
           {0x0001, 0x8001, ""},
           {0x7fff, 0x7fff, "both limited members of their partition: here 0x7fff, at the peer"},
           {0xffff, 0x8001, "different partitions: here 0xffff, at the peer 0x8001"},
           {0x8001, 0x0002, "different partitions"},
       }) {
    for (const Address& address : {InfiniBand(), Ethernet()}) {
      Address own = address;
      Address peer = address;
      own.pkey = one.own;
      peer.pkey = one.peer;
      const Status status = FindRoute(own, peer).status();
      CheckCode(status, *one.says == '\0' ? StatusCode::kOk : StatusCode::kUnavailable, one.says);
    }
  }
  // The key of no partition is none that an Encode of ours made.
  Address none = InfiniBand();
  for (const uint16_t pkey : {0x0000, 0x8000}) {
    none.pkey = pkey;
    CheckCode(DecodeBrochure(EncodeBrochure(none)).status(), StatusCode::kInvalidArgument);
  }
}

void Torments() {
  Torment(Encode(SomeHello()), TakeHello);
  Torment(EncodeBrochure(Ethernet()), TakeBrochure);
  Torment(EncodeBrochure(InfiniBand()), TakeBrochure);
  Torment(EncodeBrochure(RoceV1()), TakeBrochure);
  Torment(Encode(RemoteKey{1, uint64_t{1} << 40, 4096, 5, Access::kRead}, kSeal), TakeKey);
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  ReadsWhatItWrote();
  FindsRoutes();
  KeepsPartitionsApart();
  Torments();
  std::puts("ok frames");
}
