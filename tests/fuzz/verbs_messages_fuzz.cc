// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What servers of grpc+verbs say to each other, inside of calls and by notes over RDMA.

#include "tests/fuzz/fuzz.h"
#include "third_party/ar_grpc/verbs/messages.h"

namespace ar_grpc::verbs {
namespace {

void TakeNote(const std::string& bytes) {
  fabric::Message message;
  if (bytes.size() != message.bytes.size()) return;
  std::copy(bytes.begin(), bytes.end(), message.bytes.begin());
  const auto note = DecodeNote(message);
  if (!note.ok()) return fuzz::Must(!note.status().message().empty(), "a refusal says why");
  const auto again = DecodeNote(Encode(*note));
  fuzz::Must(again.ok() && again->transfer == note->transfer && again->written == note->written &&
                 again->size == note->size,
             "a note is read as it was written");
}

}  // namespace
}  // namespace ar_grpc::verbs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ar_grpc::verbs;  // NOLINT: an entry point
  using ar_grpc::fuzz::Must;
  using ar_grpc::fuzz::RoundTrip;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  RoundTrip(bytes, [](const std::string& each) { return DecodeIntroduce(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeIntroduced(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeAsk(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeWritten(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeHeld(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeFetch(each); });
  RoundTrip(bytes, [](const std::string& each) { return DecodeDrop(each); });
  TakeNote(bytes);
  constexpr size_t kLargestFrame = ar_grpc::fabric::kLargestAttachFrame;
  constexpr size_t kLargestKey = ar_grpc::fabric::kLargestKey;
  if (const auto introduce = DecodeIntroduce(bytes); introduce.ok()) {
    Must(introduce->frame.size() <= kLargestFrame, "frames are short");
  }
  if (const auto introduced = DecodeIntroduced(bytes); introduced.ok()) {
    Must(introduced->frame.size() <= kLargestFrame, "frames are short");
  }
  if (const auto ask = DecodeAsk(bytes); ask.ok() && ask->destination.has_value()) {
    Must(ask->destination->key.size() <= kLargestKey, "keys are short");
  }
  if (const auto fetch = DecodeFetch(bytes); fetch.ok()) {
    Must(fetch->destination.key.size() <= kLargestKey, "keys are short");
  }
  return 0;
}
