// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What servers of grpc+mpi say to each other inside of calls.

#include "tests/fuzz/fuzz.h"
#include "third_party/ar_grpc/mpi/messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ar_grpc::mpi;  // NOLINT: an entry point
  using ar_grpc::fuzz::Must;
  using ar_grpc::fuzz::RoundTrip;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  RoundTrip(bytes, [](const std::string& each) { return DecodeHello(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeWatch(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeBye(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeAsk(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeSent(each); });
  constexpr uint32_t kMost = INT32_MAX;
  if (const auto hello = DecodeHello(bytes); hello.ok())
    Must(hello->rank <= kMost, "an MPI's rank");
  if (const auto watch = DecodeWatch(bytes); watch.ok())
    Must(watch->rank <= kMost, "an MPI's rank");
  if (const auto ask = DecodeAsk(bytes); ask.ok()) {
    Must(ask->rank <= kMost && ask->tag <= kMost, "an MPI's rank and tag");
  }
  return 0;
}
