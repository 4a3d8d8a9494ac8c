// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include <algorithm>

#include "third_party/ar_grpc/base/wire.h"
#include "third_party/ar_grpc/protocol/hello.h"
#include "third_party/ar_grpc/protocol/hello_frame.h"

namespace ar_grpc::protocol::v1 {
namespace {

constexpr uint16_t kVersion1 = 1;
constexpr size_t kMaxFabrics = 16;

std::string_view Cut(std::string_view text) { return text.substr(0, kMaxText); }

bool GetShortText(Reader* reader, std::string* text) {
  return reader->GetText(text) && text->size() <= kMaxText;
}

}  // namespace

std::string Encode(const Hello& hello) {
  Writer body;
  body.Put(hello.node);
  const size_t count = std::min(hello.fabrics.size(), kMaxFabrics);
  body.Put(static_cast<uint8_t>(count));
  for (size_t i = 0; i < count; ++i) body.PutText(Cut(hello.fabrics[i]).substr(0, kMaxName));
  return MakeFrame(kVersion1, FrameKind::kHello, body.Take());
}

std::string Encode(const Answer& answer) {
  Writer body;
  body.Put(answer.node);
  body.PutText(Cut(answer.fabric));
  body.PutText(Cut(answer.address));
  body.Put(answer.token);
  body.PutText(Cut(answer.reason));
  return MakeFrame(kVersion1, FrameKind::kAnswer, body.Take());
}

std::string Encode(const Verdict& verdict) {
  Writer body;
  body.Put(static_cast<uint8_t>(verdict.established));
  body.PutText(Cut(verdict.reason));
  return MakeFrame(kVersion1, FrameKind::kVerdict, body.Take());
}

StatusOr<Hello> DecodeHello(std::string_view frame) {
  StatusOr<std::string_view> body = FrameBody(kVersion1, FrameKind::kHello, frame);
  if (!body.ok()) return body.status();
  Reader reader(*body);
  Hello hello;
  uint8_t count = 0;
  if (!reader.Get(&hello.node) || !reader.Get(&count) || count > kMaxFabrics) {
    return Malformed("hello");
  }
  hello.fabrics.resize(count);
  for (std::string& name : hello.fabrics) {
    if (!GetShortText(&reader, &name)) return Malformed("hello");
  }
  if (!reader.AtEnd()) return Malformed("hello");
  return hello;
}

StatusOr<Answer> DecodeAnswer(std::string_view frame) {
  StatusOr<std::string_view> body = FrameBody(kVersion1, FrameKind::kAnswer, frame);
  if (!body.ok()) return body.status();
  Reader reader(*body);
  Answer answer;
  if (!reader.Get(&answer.node) || !GetShortText(&reader, &answer.fabric) ||
      !GetShortText(&reader, &answer.address) || !reader.Get(&answer.token) ||
      !GetShortText(&reader, &answer.reason) || !reader.AtEnd()) {
    return Malformed("answer");
  }
  return answer;
}

StatusOr<Verdict> DecodeVerdict(std::string_view frame) {
  StatusOr<std::string_view> body = FrameBody(kVersion1, FrameKind::kVerdict, frame);
  if (!body.ok()) return body.status();
  Reader reader(*body);
  Verdict verdict;
  uint8_t established = 0;
  if (!reader.Get(&established) || established > 1 || !GetShortText(&reader, &verdict.reason) ||
      !reader.AtEnd()) {
    return Malformed("verdict");
  }
  verdict.established = established == 1;
  return verdict;
}

}  // namespace ar_grpc::protocol::v1
