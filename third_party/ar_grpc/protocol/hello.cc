// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/hello.h"

#include <utility>

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::protocol {
namespace {

enum Kind : uint16_t { kHello = 1, kAnswer = 2, kVerdict = 3 };
constexpr size_t kMaxFabrics = 16;
// Long enough for a path; the rest of a reason is for the log of the one who wrote it.
constexpr size_t kMaxText = 1024;

std::string Frame(Kind kind, std::string body) {
  Writer header;
  header.Put(kVersion);
  header.Put(static_cast<uint16_t>(kind));
  header.Put(static_cast<uint32_t>(body.size()));
  return std::string(kMagic) + header.Take() + body;
}

StatusOr<std::string_view> Body(std::string_view frame, Kind kind) {
  if (LookAt(frame).look != Look::kFrame || LookAt(frame).size != frame.size()) {
    return Status(StatusCode::kInvalidArgument, "not one whole frame");
  }
  Reader header(frame.substr(kMagic.size()));
  uint16_t version = 0;
  uint16_t found = 0;
  if (!header.Get(&version) || version != kVersion) {
    return Status(StatusCode::kUnimplemented, "the peer speaks version " + std::to_string(version) +
                                                  ", this end speaks " + std::to_string(kVersion));
  }
  if (!header.Get(&found) || found != kind) {
    return Status(StatusCode::kInvalidArgument, "a frame of kind " + std::to_string(found) +
                                                    " instead of " + std::to_string(kind));
  }
  return frame.substr(kHeader);
}

Status Malformed(const char* what) {
  return Status(StatusCode::kInvalidArgument, std::string("malformed ") + what);
}

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
  for (size_t i = 0; i < count; ++i) body.PutText(Cut(hello.fabrics[i]).substr(0, 32));
  return Frame(kHello, body.Take());
}

std::string Encode(const Answer& answer) {
  Writer body;
  body.Put(answer.node);
  body.PutText(Cut(answer.fabric));
  body.PutText(Cut(answer.address));
  body.Put(answer.token);
  body.PutText(Cut(answer.reason));
  return Frame(kAnswer, body.Take());
}

std::string Encode(const Verdict& verdict) {
  Writer body;
  body.Put(static_cast<uint8_t>(verdict.established));
  body.PutText(Cut(verdict.reason));
  return Frame(kVerdict, body.Take());
}

Seen LookAt(std::string_view bytes) {
  const size_t common = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, common) != kMagic.substr(0, common)) return {Look::kForeign};
  if (bytes.size() < kHeader) return {Look::kUnfinished};
  uint32_t length = 0;
  Reader(bytes.substr(kHeader - sizeof(length))).Get(&length);
  if (length > kMaxFrame - kHeader) return {Look::kForeign};
  if (bytes.size() < kHeader + length) return {Look::kUnfinished};
  return {Look::kFrame, kHeader + length};
}

StatusOr<Hello> DecodeHello(std::string_view frame) {
  StatusOr<std::string_view> body = Body(frame, kHello);
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
  StatusOr<std::string_view> body = Body(frame, kAnswer);
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
  StatusOr<std::string_view> body = Body(frame, kVerdict);
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

}  // namespace ar_grpc::protocol
