// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The frames of the handshake, of both versions, from the first bytes of a connection.

#include "tests/fuzz/fuzz.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/protocol/hello.h"

namespace ar_grpc::protocol {
namespace {

using fuzz::Must;
using fuzz::RoundTrip;

void AreBounded(const std::string& frame) {
  if (const auto hello = DecodeHello(frame); hello.ok()) {
    Must(hello->brochures.size() <= kMaxBrochures, "brochures are few");
    for (const Brochure& each : hello->brochures) {
      Must(each.fabric.size() <= kMaxName && each.bytes.size() <= fabric::kLargestBrochure,
           "brochures are short");
    }
  }
  if (const auto answer = DecodeAnswer(frame); answer.ok()) {
    Must(answer->fabric.size() <= kMaxName && answer->reason.size() <= kMaxText, "texts are short");
  }
  if (const auto attach = DecodeAttach(frame); attach.ok()) {
    Must(attach->bytes.size() <= fabric::kLargestAttachFrame, "attach frames are short");
  }
}

void TakeFrame(const std::string& frame) {
  AreBounded(frame);
  RoundTrip(frame, [](const std::string& bytes) { return DecodeHello(bytes); });
  RoundTrip(frame, [](const std::string& bytes) { return DecodeAnswer(bytes); });
  RoundTrip(frame, [](const std::string& bytes) { return DecodeAttach(bytes); });
  RoundTrip(frame, [](const std::string& bytes) { return DecodeVerdict(bytes); });
  RoundTrip(frame, [](const std::string& bytes) { return v1::DecodeHello(bytes); });
  RoundTrip(frame, [](const std::string& bytes) { return v1::DecodeAnswer(bytes); });
  RoundTrip(frame, [](const std::string& bytes) { return v1::DecodeVerdict(bytes); });
}

void TakeBytes(std::string bytes) {
  TakeFrame(bytes);
  // As a connection brings it: one frame after another.
  for (FrameHead head = FindFrame(bytes); head.boundary == Boundary::kFrame;
       head = FindFrame(bytes)) {
    Must(head.size >= kHeader && head.size <= kMaxFrame && head.size <= bytes.size(),
         "a frame lies in what came");
    TakeFrame(bytes.substr(0, head.size));
    bytes.erase(0, head.size);
  }
}

}  // namespace
}  // namespace ar_grpc::protocol

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ar_grpc::protocol::TakeBytes(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
