// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What verbs' ends say to each other before they are connected, and the keys of memory.

#include "tests/fuzz/fuzz.h"
#include "third_party/ar_grpc/fabric/verbs/frame.h"
#include "third_party/ar_grpc/fabric/verbs/remote_key.h"

namespace ar_grpc::fabric::verbs {
namespace {

void TakeKey(const std::string& bytes) {
  constexpr uint64_t kSeal = 0x0123456789abcdef;
  fuzz::Must(!DecodeKey(bytes, kSeal).ok() || bytes.size() <= kLargestKey, "a key is short");
  // One that the peer gave, and the same with one byte changed.
  fuzz::Input input(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  RemoteKey key;
  key.registration_id = input.Number(8);
  key.address = input.Number(8);
  key.size = input.Number(8);
  key.rkey = static_cast<uint32_t>(input.Number(4));
  key.access = input.Byte() % 2 == 0 ? Access::kRead : Access::kWrite;
  Key given = Encode(key, kSeal);
  const auto taken = DecodeKey(given, kSeal);
  // What would end behind the last address is no memory.
  fuzz::Must(taken.ok() == (key.size <= UINT64_MAX - key.address), "a key that was given is taken");
  if (taken.ok()) fuzz::Must(Encode(*taken, kSeal) == given, "and says the same");
  const size_t place = input.Byte() % given.size();
  const char change = static_cast<char>(input.Byte());
  given[place] = static_cast<char>(given[place] ^ change);
  if (change != 0) fuzz::Must(!DecodeKey(given, kSeal).ok(), "a key that was changed is refused");
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ar_grpc::fabric::verbs;  // NOLINT: an entry point
  using ar_grpc::fuzz::RoundTrip;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  RoundTrip(bytes, [](const std::string& each) { return DecodeHello(each); });
  RoundTrip(bytes, DecodeBrochure, EncodeBrochure);
  if (const auto hello = DecodeHello(bytes); hello.ok()) {
    constexpr uint32_t kMost = (1 << 24) - 1;
    ar_grpc::fuzz::Must(hello->number > 0 && hello->number <= kMost && hello->first_psn <= kMost &&
                            hello->mtu >= abi::kSmallestMtu && hello->mtu <= abi::kLargestMtu,
                        "numbers that a device takes");
    // Whatever it says of its addresses, a route is found or not.
    if (const auto route = FindRoute(hello->address, hello->address); !route.ok()) {
      ar_grpc::fuzz::Must(!route.status().message().empty(), "a refusal says why");
    }
  }
  static_cast<void>(IsReadyFrame(bytes));
  TakeKey(bytes);
  return 0;
}
