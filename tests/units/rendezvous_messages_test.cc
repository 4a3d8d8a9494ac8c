// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The bytes that the two ends of a transfer send each other.

#include "third_party/ar_grpc/protocol/rendezvous_messages.h"

#include <string>

#include "tests/conformance/testing.h"
#include "tests/units/hex.h"

namespace {

using namespace ar_grpc;            // NOLINT
using namespace ar_grpc::protocol;  // NOLINT
using fabric::testing::Check;
using fabric::testing::CheckCode;
using fabric::testing::Value;

Offer SomeOffer() {
  Offer offer;
  offer.sender.fill(1);
  offer.ticket = 0x0807060504030201;
  offer.size = 0x1000;
  offer.readable = Offer::Readable{};
  offer.readable->link.fill(2);
  offer.readable->key = "key";
  offer.readable->offset = 0x20;
  return offer;
}

void GoldenBytes() {
  Ask ask;
  ask.receiver.fill(7);
  ask.ticket = 0x0807060504030201;
  Check(Hex(Encode(ask)) == "070707070707070707070707070707070102030405060708", "an ask");
  Check(Hex(Encode(SomeOffer())) ==
            "01010101010101010101010101010101"
            "0102030405060708"
            "0010000000000000"
            "01"
            "02020202020202020202020202020202"
            "03006b6579"
            "2000000000000000",
        "an offer");
  Offer chunked = SomeOffer();
  chunked.readable.reset();
  Check(Hex(Encode(chunked)) ==
            "01010101010101010101010101010101"
            "0102030405060708"
            "0010000000000000"
            "00",
        "an offer of chunks");
  ChunkRequest request;
  request.receiver.fill(7);
  request.ticket = 1;
  request.offset = 2;
  request.length = 3;
  Check(Hex(Encode(request)) ==
            "07070707070707070707070707070707"
            "0100000000000000"
            "0200000000000000"
            "0300000000000000",
        "a request");
  Check(std::string(Ask::kType) == "ar-grpc/ask.3" &&
            std::string(Offer::kType) == "ar-grpc/offer.3" &&
            std::string(ChunkRequest::kType) == "ar-grpc/chunk.1",
        "the names");
}

void WhatIsSentIsRead() {
  const Offer offer = Value(DecodeOffer(Encode(SomeOffer())));
  Check(offer.sender == SomeOffer().sender && offer.ticket == SomeOffer().ticket &&
            offer.size == 0x1000 && offer.readable->link == SomeOffer().readable->link &&
            offer.readable->key == "key" && offer.readable->offset == 0x20,
        "an offer");
  const ChunkRequest request = Value(DecodeChunkRequest(Encode(ChunkRequest{{}, 1, 2, 3})));
  Check(request.ticket == 1 && request.offset == 2 && request.length == 3, "a request");
  Check(Value(DecodeAsk(Encode(Ask{{}, 9}))).ticket == 9, "an ask");
}

void BadBytesAreRefused() {
  Offer longest = SomeOffer();
  longest.readable->key.assign(fabric::kLargestKey, 'k');
  Check(DecodeOffer(Encode(longest)).ok(), "the longest key");
  longest.readable->key += 'k';
  CheckCode(DecodeOffer(Encode(longest)).status(), StatusCode::kInvalidArgument);
  Offer beyond = SomeOffer();
  beyond.readable->offset = UINT64_MAX - 0xfff;
  CheckCode(DecodeOffer(Encode(beyond)).status(), StatusCode::kInvalidArgument);
  --beyond.readable->offset;
  Check(DecodeOffer(Encode(beyond)).ok(), "the largest offset");
  std::string flag = Encode(SomeOffer());
  flag[32] = 2;
  CheckCode(DecodeOffer(flag).status(), StatusCode::kInvalidArgument);

  const std::string good[] = {Encode(Ask{}), Encode(SomeOffer()), Encode(ChunkRequest{})};
  for (int kind = 0; kind < 3; ++kind) {
    const auto decode = [kind](const std::string& bytes) {
      return kind == 0   ? DecodeAsk(bytes).status()
             : kind == 1 ? DecodeOffer(bytes).status()
                         : DecodeChunkRequest(bytes).status();
    };
    Check(decode(good[kind]).ok(), "whole");
    for (size_t size = 0; size < good[kind].size(); ++size) {
      CheckCode(decode(good[kind].substr(0, size)), StatusCode::kInvalidArgument, "malformed");
    }
    CheckCode(decode(good[kind] + 'x'), StatusCode::kInvalidArgument, "malformed");
    // Every changed bit is an error or another value, never a crash (the sanitizers look).
    for (size_t i = 0; i < good[kind].size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string changed = good[kind];
        changed[i] = static_cast<char>(changed[i] ^ (1 << bit));
        (void)decode(changed).ok();
      }
    }
  }
}

}  // namespace

int main() {
  fabric::testing::RunAll("messages", {
                                          {"golden bytes", GoldenBytes},
                                          {"round trip", WhatIsSentIsRead},
                                          {"bad bytes", BadBytesAreRefused},
                                      });
  return 0;
}
