// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What verbs' ends say to each other before they are connected over iWARP.

#include "tests/fuzz/fuzz.h"
#include "third_party/ar_grpc/fabric/verbs/iwarp_frame.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ar_grpc::fabric::verbs;  // NOLINT: an entry point
  using ar_grpc::fuzz::Must;
  using ar_grpc::fuzz::RoundTrip;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  RoundTrip(bytes, [](const std::string& each) { return DecodeInvitation(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeIntroduction(each); });
  RoundTrip(bytes, DecodeConnected, ConnectedFrame);
  // As the device fills it up.
  if (const auto introduction = DecodeIntroduction(bytes); introduction.ok()) {
    const auto filled = DecodeIntroduction(Encode(*introduction) + std::string(24, '\0'));
    Must(filled.ok() && filled->token == introduction->token, "what follows does not matter");
  }
  return 0;
}
