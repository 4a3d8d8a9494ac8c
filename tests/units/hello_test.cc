// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The frames of the handshake: their bytes, of both versions, and that nothing else is taken for
// one.

#include "third_party/ar_grpc/protocol/hello.h"

#include <string>
#include <string_view>
#include <vector>

#include "tests/conformance/testing.h"
#include "tests/units/hex.h"
#include "third_party/ar_grpc/base/wire.h"

namespace {

using namespace ar_grpc;            // NOLINT
using namespace ar_grpc::protocol;  // NOLINT
using fabric::testing::Check;
using fabric::testing::CheckCode;
using fabric::testing::Value;

void CheckHex(const std::string& bytes, const std::string& hex, int line = __builtin_LINE()) {
  Check(Hex(bytes) == hex, "got " + Hex(bytes), line);
}

NodeId SomeNode() {
  NodeId node;
  for (size_t i = 0; i < node.size(); ++i) node[i] = static_cast<uint8_t>(i);
  return node;
}

Hello SomeHello() {
  Hello hello;
  hello.node = SomeNode();
  hello.features = 5;
  hello.brochures = {{"shm", "ab"}, {"verbs", ""}};
  return hello;
}

Answer SomeAnswer() {
  Answer answer;
  answer.node.fill(1);
  answer.features = 1;
  answer.attempt = 2;
  answer.fabric = "shm";
  answer.link.fill(2);
  answer.reason = "r";
  answer.transient = true;
  return answer;
}

Verdict SomeVerdict() {
  Verdict verdict;
  verdict.attempt = 3;
  verdict.reason = "no";
  verdict.transient = true;
  return verdict;
}

std::vector<std::string> SomeFrames() {
  v1::Hello hello;
  hello.node = SomeNode();
  hello.fabrics = {"shm", "verbs"};
  v1::Answer answer;
  answer.fabric = "shm";
  answer.address = "@a";
  return {Encode(SomeHello()),
          Encode(SomeAnswer()),
          Encode(Attach{7, "frame"}),
          Encode(SomeVerdict()),
          v1::Encode(hello),
          v1::Encode(answer),
          v1::Encode(v1::Verdict{true, ""})};
}

void DecodeAll(const std::string& frame) {
  (void)DecodeHello(frame).ok();
  (void)DecodeAnswer(frame).ok();
  (void)DecodeAttach(frame).ok();
  (void)DecodeVerdict(frame).ok();
  (void)v1::DecodeHello(frame).ok();
  (void)v1::DecodeAnswer(frame).ok();
  (void)v1::DecodeVerdict(frame).ok();
}

void GoldenBytes() {
  CheckHex(Encode(SomeHello()),
           "41522d675250430a"
           "0200"
           "0100"
           "3e000000"  // version, kind, length
           "0100"
           "10000000"
           "000102030405060708090a0b0c0d0e0f"
           "0200"
           "08000000"
           "0500000000000000"
           "0300"
           "07000000"
           "0300"
           "73686d"
           "6162"
           "0300"
           "07000000"
           "0500"
           "7665726273");
  CheckHex(Encode(SomeAnswer()),
           "41522d675250430a"
           "0200"
           "0200"
           "5b000000"
           "0100"
           "10000000"
           "01010101010101010101010101010101"
           "0200"
           "08000000"
           "0100000000000000"
           "0300"
           "04000000"
           "02000000"
           "0400"
           "03000000"
           "73686d"
           "0500"
           "10000000"
           "02020202020202020202020202020202"
           "0600"
           "01000000"
           "72"
           "0700"
           "01000000"
           "01");
  CheckHex(Encode(Attach{7, "frame"}),
           "41522d675250430a"
           "0200"
           "0400"
           "15000000"
           "0100"
           "04000000"
           "07000000"
           "0200"
           "05000000"
           "6672616d65");
  CheckHex(Encode(SomeVerdict()),
           "41522d675250430a"
           "0200"
           "0300"
           "20000000"
           "0100"
           "04000000"
           "03000000"
           "0200"
           "01000000"
           "00"
           "0300"
           "02000000"
           "6e6f"
           "0400"
           "01000000"
           "01");
}

void GoldenBytesOfVersion1() {
  v1::Hello hello;
  hello.node = SomeNode();
  hello.fabrics = {"shm", "verbs"};
  CheckHex(v1::Encode(hello),
           "41522d675250430a"  // magic
           "0100"
           "0100"
           "1d000000"                          // version, kind, length
           "000102030405060708090a0b0c0d0e0f"  // node
           "02"
           "0300"
           "73686d"
           "0500"
           "7665726273");
  const v1::Hello same_hello = Value(v1::DecodeHello(v1::Encode(hello)));
  Check(same_hello.node == hello.node && same_hello.fabrics == hello.fabrics, "the same");
  v1::Answer answer;
  answer.node.fill(1);
  answer.fabric = "shm";
  answer.address = "@a";
  answer.token.fill(2);
  CheckHex(v1::Encode(answer),
           "41522d675250430a"
           "0100"
           "0200"
           "2b000000"
           "01010101010101010101010101010101"
           "0300"
           "73686d"
           "0200"
           "4061"
           "02020202020202020202020202020202"
           "0000");
  const v1::Answer same = Value(v1::DecodeAnswer(v1::Encode(answer)));
  Check(same.fabric == "shm" && same.address == "@a" && same.token[5] == 2, "the same");
  CheckHex(v1::Encode(v1::Verdict{true, ""}),
           "41522d675250430a"
           "0100"
           "0300"
           "03000000"
           "01"
           "0000");
  Check(Value(v1::DecodeVerdict(v1::Encode(v1::Verdict{true, ""}))).established, "the same");
}

void WhatIsEncodedIsDecoded() {
  const Hello hello = Value(DecodeHello(Encode(SomeHello())));
  Check(hello.node == SomeNode() && hello.features == 5, "node and features");
  Check(hello.brochures.size() == 2 && hello.brochures[0].fabric == "shm" &&
            hello.brochures[0].bytes == "ab" && hello.brochures[1].fabric == "verbs" &&
            hello.brochures[1].bytes.empty(),
        "brochures in order");
  const Answer answer = Value(DecodeAnswer(Encode(SomeAnswer())));
  Check(answer.node[3] == 1 && answer.features == 1 && answer.attempt == 2, "an answer");
  Check(answer.fabric == "shm" && answer.link[3] == 2 && answer.reason == "r" && answer.transient,
        "an answer");
  const Attach attach = Value(DecodeAttach(Encode(Attach{7, std::string("a\0b", 3)})));
  Check(attach.attempt == 7 && attach.bytes == std::string("a\0b", 3), "a frame");
  const Verdict verdict = Value(DecodeVerdict(Encode(SomeVerdict())));
  Check(verdict.attempt == 3 && !verdict.established && verdict.reason == "no" && verdict.transient,
        "a verdict");
}

void ForeignBytesAreForeign() {
  Check(FindFrame("").boundary == Boundary::kIncomplete, "nothing");
  Check(FindFrame("A").boundary == Boundary::kIncomplete, "a part of the magic");
  for (const std::string& bytes :
       {std::string("P"), std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        std::string("\x16\x03\x01", 3), std::string("\0\0\x24\4", 4)}) {
    Check(FindFrame(bytes).boundary == Boundary::kForeign, "not ours");
  }
  for (const std::string& frame : SomeFrames()) {
    for (size_t size = 0; size < frame.size(); ++size) {
      const std::string prefix = frame.substr(0, size);
      Check(FindFrame(prefix).boundary == Boundary::kIncomplete, "a prefix");
      CheckCode(DecodeHello(prefix).status(), StatusCode::kInvalidArgument, "whole");
      DecodeAll(prefix);
    }
    const FrameHead two = FindFrame(frame + frame);
    Check(two.boundary == Boundary::kFrame && two.size == frame.size(), "one of two");
    std::string longer = frame;
    longer[14] = 1;  // 64 KiB more
    Check(FindFrame(longer).boundary == Boundary::kForeign, "too long");
  }
}

std::string WithBody(uint16_t kind, const std::string& body) {
  Writer header;
  header.Put(kVersion);
  header.Put(kind);
  header.Put(static_cast<uint32_t>(body.size()));
  return std::string(kMagic) + header.Take() + body;
}

std::string Field(uint16_t field, const std::string& bytes) {
  Writer head;
  head.Put(field);
  head.Put(static_cast<uint32_t>(bytes.size()));
  return head.Take() + bytes;
}

void UnknownFieldsAreSkipped() {
  for (const std::string& frame : SomeFrames()) {
    if (frame[8] != kVersion) continue;
    std::string more = frame.substr(kHeader) + Field(99, "new") + Field(99, "") + Field(40000, "x");
    more = WithBody(static_cast<uint8_t>(frame[10]), more);
    const int decoded = DecodeHello(more).ok() + DecodeAnswer(more).ok() + DecodeAttach(more).ok() +
                        DecodeVerdict(more).ok();
    Check(decoded == 1, "what is known of it");
  }
}

void BadFramesAreRefused() {
  const std::string node(16, 'n');
  const std::string two(4, '\2');
  const auto refused = [](const Status& status) {
    CheckCode(status, StatusCode::kInvalidArgument, "malformed");
  };
  refused(DecodeHello(WithBody(1, "")).status());
  refused(DecodeHello(WithBody(1, Field(1, node) + Field(1, node))).status());
  refused(DecodeHello(WithBody(1, Field(1, node.substr(1)))).status());
  refused(DecodeHello(WithBody(1, Field(1, node + "n"))).status());
  refused(DecodeHello(WithBody(1, Field(1, node) + "x")).status());
  refused(DecodeHello(WithBody(1, Field(1, node) + Field(9, "123").substr(0, 8))).status());
  const auto brochure = [](size_t name, size_t bytes) {
    Writer writer;
    writer.PutText(std::string(name, 'x'));
    return Field(3, writer.Take() + std::string(bytes, 'b'));
  };
  Check(DecodeHello(WithBody(1, Field(1, node) + brochure(kMaxName, 512))).ok(), "the largest");
  refused(DecodeHello(WithBody(1, Field(1, node) + brochure(kMaxName + 1, 0))).status());
  refused(DecodeHello(WithBody(1, Field(1, node) + brochure(3, 513))).status());
  refused(DecodeHello(WithBody(1, Field(1, node) + brochure(0, 1))).status());
  refused(DecodeHello(WithBody(1, Field(1, node) + Field(3, "\xff"))).status());
  std::string many = Field(1, node);
  for (size_t i = 0; i < kMaxBrochures; ++i) many += brochure(3, 1);
  Check(DecodeHello(WithBody(1, many)).ok(), "as many as there may be");
  refused(DecodeHello(WithBody(1, many + brochure(3, 1))).status());
  refused(DecodeAnswer(WithBody(2, Field(1, node))).status());
  refused(DecodeAnswer(WithBody(2, Field(1, node) + Field(3, two) + Field(4, "shm"))).status());
  refused(DecodeAnswer(WithBody(2, Field(1, node) + Field(3, two) + Field(7, "\2"))).status());
  refused(
      DecodeAnswer(WithBody(2, Field(1, node) + Field(3, two) + Field(6, std::string(1025, 'r'))))
          .status());
  refused(DecodeAttach(WithBody(4, Field(1, two))).status());
  refused(DecodeAttach(WithBody(4, Field(1, two) + Field(2, std::string(1025, 'f')))).status());
  refused(DecodeVerdict(WithBody(3, Field(1, two))).status());
  refused(DecodeVerdict(WithBody(3, Field(1, two) + Field(2, "\2"))).status());

  std::string other = Encode(SomeHello());
  other[8] = 3;
  CheckCode(DecodeHello(other).status(), StatusCode::kUnimplemented,
            "the peer speaks version 3, this end speaks 2");
  CheckCode(DecodeAnswer(Encode(SomeHello())).status(), StatusCode::kInvalidArgument,
            "a frame of kind 1 instead of 2");
  CheckCode(v1::DecodeAnswer(Encode(SomeAnswer())).status(), StatusCode::kUnimplemented,
            "version 2");
  // Every changed bit is an error or another value, never a crash (the sanitizers look).
  for (const std::string& good : SomeFrames()) {
    for (size_t i = 0; i < good.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        std::string frame = good;
        frame[i] = static_cast<char>(frame[i] ^ (1 << bit));
        DecodeAll(frame);
      }
    }
  }
}

void LongTextsAreCut() {
  Hello hello = SomeHello();
  hello.brochures.assign(100, Brochure{std::string(kMaxName, 'x'), std::string(512, 'b')});
  Check(Value(DecodeHello(Encode(hello))).brochures.size() == kMaxBrochures, "so many");
  Check(Encode(hello).size() <= kMaxFrame, "fits");
  hello.brochures = {
      {std::string(33, 'x'), ""}, {"shm", std::string(513, 'b')}, {"", ""}, {"a", ""}};
  Check(Value(DecodeHello(Encode(hello))).brochures.size() == 1, "the one that is none too long");
  Answer answer = SomeAnswer();
  answer.reason.assign(100000, 'r');
  Check(Value(DecodeAnswer(Encode(answer))).reason.size() == kMaxText, "cut");
  Verdict verdict = SomeVerdict();
  verdict.reason.assign(100000, 'r');
  Check(Value(DecodeVerdict(Encode(verdict))).reason.size() == kMaxText, "cut");
  v1::Hello many;
  many.fabrics.assign(100, std::string(5000, 'x'));
  Check(v1::DecodeHello(v1::Encode(many)).ok() && v1::Encode(many).size() <= 4096, "fits");
  v1::Answer wordy;
  wordy.reason.assign(100000, 'r');
  Check(v1::DecodeAnswer(v1::Encode(wordy)).ok() && v1::Encode(wordy).size() <= 4096, "fits");
}

}  // namespace

int main() {
  ar_grpc::fabric::testing::RunAll("hello",
                                   {{"golden bytes", GoldenBytes},
                                    {"golden bytes of version 1", GoldenBytesOfVersion1},
                                    {"what is encoded is decoded", WhatIsEncodedIsDecoded},
                                    {"foreign bytes are foreign", ForeignBytesAreForeign},
                                    {"unknown fields are skipped", UnknownFieldsAreSkipped},
                                    {"bad frames are refused", BadFramesAreRefused},
                                    {"long texts are cut", LongTextsAreCut}});
}
