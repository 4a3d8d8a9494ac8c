// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The bytes that two servers of grpc+mpi send each other.

#include <cstdio>
#include <string>

#include "tests/conformance/testing.h"
#include "tests/units/decoding.h"
#include "tests/units/hex.h"
#include "third_party/ar_grpc/mpi/messages.h"

namespace {

using namespace ar_grpc;       // NOLINT
using namespace ar_grpc::mpi;  // NOLINT
using fabric::testing::Check;
using fabric::testing::CheckCode;
using fabric::testing::Value;
using testing::IsRefused;

constexpr char kSevens[] = "07070707070707070707070707070707";

Token Sevens() {
  Token token;
  token.fill(7);
  return token;
}

void GoldenBytes() {
  const std::string sevens = kSevens;
  Check(Hex(Encode(Hello{Sevens(), 0x01020304})) == sevens + "04030201", "a hello");
  Check(Encode(Hello{}).size() == Hello::kBytes, "a hello's size");
  Check(Hex(Encode(Watch{Sevens(), {}, 5})) == sevens + std::string(32, '0') + "05000000",
        "a watch");
  Check(Hex(Encode(Bye{Sevens()})) == sevens, "a bye");
  Check(Hex(Encode(Ask{Sevens(), 1, 0x7fffffff})) == sevens + "01000000ffffff7f", "an ask");
  Check(Hex(Encode(Sent{0x0102030405060708})) == "0807060504030201", "an answer");
}

void ThereAndBack() {
  const Hello hello = Value(DecodeHello(Encode(Hello{Sevens(), 3})));
  Check(hello.job == Sevens() && hello.rank == 3, "a hello");
  const Watch watch = Value(DecodeWatch(Encode(Watch{Token{}, Sevens(), 4})));
  Check(watch.id == Token{} && watch.job == Sevens() && watch.rank == 4, "a watch");
  Check(Value(DecodeBye(Encode(Bye{Sevens()}))).watch == Sevens(), "a bye");
  const Ask ask = Value(DecodeAsk(Encode(Ask{Sevens(), 5, 6})));
  Check(ask.job == Sevens() && ask.rank == 5 && ask.tag == 6, "an ask");
  Check(Value(DecodeSent(Encode(Sent{uint64_t{1} << 40}))).size == uint64_t{1} << 40, "an answer");
}

void NonsenseIsRefused() {
  IsRefused(DecodeHello, Encode(Hello{}));
  IsRefused(DecodeWatch, Encode(Watch{}));
  IsRefused(DecodeBye, Encode(Bye{}));
  IsRefused(DecodeAsk, Encode(Ask{}));
  IsRefused(DecodeSent, Encode(Sent{}));
  // No MPI has such a rank or tag.
  CheckCode(DecodeHello(Encode(Hello{{}, 0x80000000})).status(), StatusCode::kInvalidArgument);
  CheckCode(DecodeWatch(Encode(Watch{{}, {}, 0x80000000})).status(), StatusCode::kInvalidArgument);
  CheckCode(DecodeAsk(Encode(Ask{{}, 0x80000000, 0})).status(), StatusCode::kInvalidArgument);
  CheckCode(DecodeAsk(Encode(Ask{{}, 0, 0x80000000})).status(), StatusCode::kInvalidArgument);
}

}  // namespace

int main() {
  GoldenBytes();
  ThereAndBack();
  NonsenseIsRefused();
  std::printf("ok messages of grpc+mpi\n");
  return 0;
}
