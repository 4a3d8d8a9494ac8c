// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What the two ends of a transfer say to each other inside of calls.

#include "tests/fuzz/fuzz.h"
#include "third_party/ar_grpc/protocol/rendezvous_messages.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ar_grpc::protocol;  // NOLINT: an entry point
  using ar_grpc::fuzz::RoundTrip;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  RoundTrip(bytes, [](const std::string& each) { return DecodeAsk(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeOffer(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeChunkRequest(each); });
  if (const auto offer = DecodeOffer(bytes); offer.ok() && offer->readable.has_value()) {
    ar_grpc::fuzz::Must(offer->readable->key.size() <= ar_grpc::fabric::kLargestKey,
                        "keys are short");
  }
  return 0;
}
