// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The bytes that two servers of grpc+verbs send each other.

#include <cstdio>
#include <string>

#include "tests/conformance/testing.h"
#include "tests/units/decoding.h"
#include "tests/units/hex.h"
#include "third_party/ar_grpc/verbs/messages.h"

namespace {

using namespace ar_grpc;         // NOLINT
using namespace ar_grpc::verbs;  // NOLINT
using fabric::testing::Check;
using fabric::testing::CheckCode;
using fabric::testing::Value;
using testing::IsRefused;

const std::string sevens = "07070707070707070707070707070707";

Token Sevens() {
  Token token;
  token.fill(7);
  return token;
}

const Destination destination = {"key", 1, 2};
const std::string destination_hex = "03006b657901000000000000000200000000000000";

void GoldenBytes() {
  Check(Hex(Encode(Introduce{Sevens(), "ab"})) == sevens + "02006162", "an introduction");
  const std::string answer = Encode(Introduced{true, "ab"});
  Check(answer.size() == Introduced::kBytes, "an answer's size");
  Check(Hex(answer.substr(0, 6)) == "010200616200", "an answer");
  Check(Hex(Encode(Ask{Sevens(), 5, std::nullopt})) == sevens + "050000000000000000", "an ask");
  Check(
      Hex(Encode(Ask{Sevens(), 5, destination})) == sevens + "050000000000000001" + destination_hex,
      "an ask with room");
  Check(Hex(Encode(Written{0x0102030405060708})) == "0807060504030201", "what was written");
  Check(Hex(Encode(Held{4})) == "0400000000000000", "what is held");
  Check(Hex(Encode(Fetch{Sevens(), 3, 5, destination})) ==
            sevens + "03000000000000000500000000000000" + destination_hex,
        "a fetch");
  Check(Hex(Encode(Drop{Sevens(), 3, 4})) == sevens + "03000000000000000400000000000000", "a drop");
  const fabric::Message note = Encode(Note{5, true, 6});
  Check(Hex(std::string(note.bytes.begin(), note.bytes.end())) ==
            "0105000000000000000600000000000000" + std::string(30, '0'),
        "a note");
}

void ThereAndBack() {
  const Introduce introduce = Value(DecodeIntroduce(Encode(Introduce{Sevens(), "frame"})));
  Check(introduce.link == Sevens() && introduce.frame == "frame", "an introduction");
  const std::string longest(fabric::kLargestAttachFrame, 'x');
  const Introduced introduced = Value(DecodeIntroduced(Encode(Introduced{false, longest})));
  Check(!introduced.made && introduced.frame == longest, "an answer");
  Check(Value(DecodeIntroduced(Encode(Introduced{true, ""}))).made, "an answer without a frame");
  const Ask ask = Value(DecodeAsk(Encode(Ask{Sevens(), 5, destination})));
  Check(ask.link == Sevens() && ask.transfer == 5 && ask.destination->key == "key" &&
            ask.destination->offset == 1 && ask.destination->size == 2,
        "an ask");
  Check(!Value(DecodeAsk(Encode(Ask{Sevens(), 5, std::nullopt}))).destination, "an ask");
  Check(Value(DecodeWritten(Encode(Written{9}))).size == 9, "what was written");
  const Held held = Value(DecodeHeld(Encode(Held{uint64_t{1} << 40})));
  Check(held.size == uint64_t{1} << 40, "what is held");
  const Fetch fetch = Value(DecodeFetch(Encode(Fetch{Sevens(), 3, 5, destination})));
  Check(fetch.link == Sevens() && fetch.asked == 3 && fetch.transfer == 5 &&
            fetch.destination.size == 2,
        "a fetch");
  const Drop drop = Value(DecodeDrop(Encode(Drop{Sevens(), 3, 4})));
  Check(drop.link == Sevens() && drop.asked == 3 && drop.offered == 4, "a drop");
  const Note note = Value(DecodeNote(Encode(Note{5, false, 6})));
  Check(note.transfer == 5 && !note.written && note.size == 6, "a note");
}

void NonsenseIsRefused() {
  IsRefused(DecodeIntroduce, Encode(Introduce{{}, "frame"}));
  IsRefused(DecodeIntroduced, Encode(Introduced{true, "frame"}));
  IsRefused(DecodeAsk, Encode(Ask{{}, 1, destination}));
  IsRefused(DecodeWritten, Encode(Written{}));
  IsRefused(DecodeHeld, Encode(Held{}));
  IsRefused(DecodeFetch, Encode(Fetch{{}, 1, 2, destination}));
  IsRefused(DecodeDrop, Encode(Drop{}));
  // Longer than any frame or key, and a flag that is none.
  const std::string frame(fabric::kLargestAttachFrame + 1, 'x');
  CheckCode(DecodeIntroduce(Encode(Introduce{{}, frame})).status(), StatusCode::kInvalidArgument);
  const Destination far = {std::string(fabric::kLargestKey + 1, 'k'), 0, 0};
  CheckCode(DecodeAsk(Encode(Ask{{}, 1, far})).status(), StatusCode::kInvalidArgument);
  CheckCode(DecodeFetch(Encode(Fetch{{}, 1, 2, far})).status(), StatusCode::kInvalidArgument);
  std::string answer = Encode(Introduced{});
  answer[0] = 2;
  CheckCode(DecodeIntroduced(answer).status(), StatusCode::kInvalidArgument);
  fabric::Message note = Encode(Note{});
  note.bytes[0] = 2;
  CheckCode(DecodeNote(note).status(), StatusCode::kInvalidArgument);
}

}  // namespace

int main() {
  GoldenBytes();
  ThereAndBack();
  NonsenseIsRefused();
  std::printf("ok messages of grpc+verbs\n");
  return 0;
}
