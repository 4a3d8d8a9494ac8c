// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/hello.h"

#include <algorithm>
#include <utility>

#include "third_party/ar_grpc/base/wire.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/protocol/hello_frame.h"

namespace ar_grpc::protocol {

std::string MakeFrame(uint16_t version, FrameKind kind, const std::string& body) {
  Writer header;
  header.Put(version);
  header.Put(static_cast<uint16_t>(kind));
  header.Put(static_cast<uint32_t>(body.size()));
  return std::string(kMagic) + header.Take() + body;
}

StatusOr<std::string_view> FrameBody(uint16_t version, FrameKind kind, std::string_view frame) {
  const FrameHead head = FindFrame(frame);
  if (head.boundary != Boundary::kFrame || head.size != frame.size()) {
    return Status(StatusCode::kInvalidArgument, "not one whole frame");
  }
  if (head.version != version) return OtherVersion(head.version, version);
  if (head.kind != static_cast<uint16_t>(kind)) {
    return Status(StatusCode::kInvalidArgument, "a frame of kind " + std::to_string(head.kind) +
                                                    " instead of " +
                                                    std::to_string(static_cast<uint16_t>(kind)));
  }
  return frame.substr(kHeader);
}

Status OtherVersion(uint16_t peers, uint16_t own) {
  return Status(StatusCode::kUnimplemented, "the peer speaks version " + std::to_string(peers) +
                                                ", this end speaks " + std::to_string(own));
}

Status Malformed(const char* what) {
  return Status(StatusCode::kInvalidArgument, std::string("malformed ") + what);
}

namespace {

// Identifiers of fields; those that went out of use are not used again.
enum HelloField : uint16_t { kHelloNode = 1, kHelloFeatures = 2, kHelloBrochure = 3 };
enum AnswerField : uint16_t {
  kAnswerNode = 1,
  kAnswerFeatures = 2,
  kAnswerAttempt = 3,
  kAnswerFabric = 4,
  kAnswerLink = 5,
  kAnswerReason = 6,
  kAnswerTransient = 7,
};
enum AttachField : uint16_t { kAttachAttempt = 1, kAttachBytes = 2 };
enum VerdictField : uint16_t {
  kVerdictAttempt = 1,
  kVerdictEstablished = 2,
  kVerdictReason = 3,
  kVerdictTransient = 4,
};

class FieldWriter {
 public:
  template <typename Value>
  void Put(uint16_t field, const Value& value) {
    Writer bytes;
    bytes.Put(value);
    PutBytes(field, bytes.Take());
  }
  void PutText(uint16_t field, std::string_view text) { PutBytes(field, text.substr(0, kMaxText)); }
  void PutBytes(uint16_t field, std::string_view bytes) {
    Writer head;
    head.Put(field);
    head.Put(static_cast<uint32_t>(bytes.size()));
    body_ += head.Take();
    body_ += bytes;
  }
  std::string Take() { return std::move(body_); }

 private:
  std::string body_;
};

// Goes through the fields of a body, each of which may be there once, but for those that the caller
// lets come again.
class FieldReader {
 public:
  explicit FieldReader(std::string_view body) : rest_(body) {}

  // false: at the end, or malformed.
  bool Next() {
    if (rest_.empty()) return false;
    Reader reader(rest_);
    uint32_t size = 0;
    if (!reader.Get(&field_) || !reader.Get(&size)) return Break();
    const std::string_view after = reader.Rest();
    if (size > after.size()) return Break();
    bytes_ = after.substr(0, size);
    rest_ = after.substr(size);
    return true;
  }
  uint16_t field() const { return field_; }
  std::string_view bytes() const { return bytes_; }

  template <typename Value>
  void Get(Value* value) {
    Reader reader(bytes_);
    if (Again() || !reader.Get(value) || !reader.AtEnd()) Break();
  }
  void GetFlag(bool* value) {
    uint8_t byte = 0;
    Get(&byte);
    if (byte > 1) Break();
    *value = byte == 1;
  }
  void GetText(std::string* text, size_t most) {
    if (Again() || bytes_.size() > most) {
      Break();
      return;
    }
    text->assign(bytes_);
  }
  bool Break() {
    broken_ = true;
    rest_ = {};
    return false;
  }
  // Whether all was well, and each field of `needed` was there.
  bool Has(std::initializer_list<uint16_t> needed) const {
    return !broken_ && std::all_of(needed.begin(), needed.end(),
                                   [this](uint16_t field) { return (seen_ >> field & 1) != 0; });
  }

 private:
  // Only known fields get here, and all of those are below 32.
  bool Again() {
    const bool again = (seen_ >> field_ & 1) != 0;
    seen_ |= uint32_t{1} << field_;
    return again;
  }

  std::string_view rest_;
  std::string_view bytes_;
  uint16_t field_ = 0;
  uint32_t seen_ = 0;
  bool broken_ = false;
};

bool GoodBrochure(const Brochure& brochure) {
  return !brochure.fabric.empty() && brochure.fabric.size() <= kMaxName &&
         brochure.bytes.size() <= fabric::kLargestBrochure;
}

bool DecodeBrochure(std::string_view bytes, Brochure* brochure) {
  Reader reader(bytes);
  if (!reader.GetText(&brochure->fabric)) return false;
  brochure->bytes.assign(reader.Rest());
  return GoodBrochure(*brochure);
}

}  // namespace

FrameHead FindFrame(std::string_view bytes) {
  FrameHead head;
  const size_t common = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, common) != kMagic.substr(0, common)) {
    head.boundary = Boundary::kForeign;
    return head;
  }
  if (bytes.size() < kHeader) return head;
  uint32_t length = 0;
  Reader reader(bytes.substr(kMagic.size()));
  if (!reader.Get(&head.version) || !reader.Get(&head.kind) || !reader.Get(&length)) return head;
  if (length > kMaxFrame - kHeader) {
    head.boundary = Boundary::kForeign;
  } else if (bytes.size() >= kHeader + length) {
    head.boundary = Boundary::kFrame;
    head.size = kHeader + length;
  }
  return head;
}

std::string Encode(const Hello& hello) {
  FieldWriter body;
  body.Put(kHelloNode, hello.node);
  body.Put(kHelloFeatures, hello.features);
  size_t count = 0;
  for (const Brochure& brochure : hello.brochures) {
    if (!GoodBrochure(brochure)) continue;
    if (++count > kMaxBrochures) break;
    Writer bytes;
    bytes.PutText(brochure.fabric);
    body.PutBytes(kHelloBrochure, bytes.Take() + brochure.bytes);
  }
  return MakeFrame(kVersion, FrameKind::kHello, body.Take());
}

std::string Encode(const Answer& answer) {
  FieldWriter body;
  body.Put(kAnswerNode, answer.node);
  body.Put(kAnswerFeatures, answer.features);
  body.Put(kAnswerAttempt, answer.attempt);
  if (!answer.fabric.empty()) {
    body.PutText(kAnswerFabric, std::string_view(answer.fabric).substr(0, kMaxName));
    body.Put(kAnswerLink, answer.link);
  }
  if (!answer.reason.empty()) body.PutText(kAnswerReason, answer.reason);
  if (answer.transient) body.Put(kAnswerTransient, uint8_t{1});
  return MakeFrame(kVersion, FrameKind::kAnswer, body.Take());
}

std::string Encode(const Attach& attach) {
  FieldWriter body;
  body.Put(kAttachAttempt, attach.attempt);
  body.PutBytes(kAttachBytes,
                std::string_view(attach.bytes).substr(0, fabric::kLargestAttachFrame));
  return MakeFrame(kVersion, FrameKind::kAttach, body.Take());
}

std::string Encode(const Verdict& verdict) {
  FieldWriter body;
  body.Put(kVerdictAttempt, verdict.attempt);
  body.Put(kVerdictEstablished, static_cast<uint8_t>(verdict.established));
  if (!verdict.reason.empty()) body.PutText(kVerdictReason, verdict.reason);
  if (verdict.transient) body.Put(kVerdictTransient, uint8_t{1});
  return MakeFrame(kVersion, FrameKind::kVerdict, body.Take());
}

StatusOr<Hello> DecodeHello(std::string_view frame) {
  StatusOr<std::string_view> body = FrameBody(kVersion, FrameKind::kHello, frame);
  if (!body.ok()) return body.status();
  FieldReader fields(*body);
  Hello hello;
  while (fields.Next()) {
    switch (fields.field()) {
      case kHelloNode:
        fields.Get(&hello.node);
        break;
      case kHelloFeatures:
        fields.Get(&hello.features);
        break;
      case kHelloBrochure: {
        Brochure brochure;
        if (hello.brochures.size() == kMaxBrochures || !DecodeBrochure(fields.bytes(), &brochure)) {
          fields.Break();
        } else {
          hello.brochures.push_back(std::move(brochure));
        }
        break;
      }
      default:
        break;
    }
  }
  if (!fields.Has({kHelloNode})) return Malformed("hello");
  return hello;
}

StatusOr<Answer> DecodeAnswer(std::string_view frame) {
  StatusOr<std::string_view> body = FrameBody(kVersion, FrameKind::kAnswer, frame);
  if (!body.ok()) return body.status();
  FieldReader fields(*body);
  Answer answer;
  while (fields.Next()) {
    switch (fields.field()) {
      case kAnswerNode:
        fields.Get(&answer.node);
        break;
      case kAnswerFeatures:
        fields.Get(&answer.features);
        break;
      case kAnswerAttempt:
        fields.Get(&answer.attempt);
        break;
      case kAnswerFabric:
        fields.GetText(&answer.fabric, kMaxName);
        break;
      case kAnswerLink:
        fields.Get(&answer.link);
        break;
      case kAnswerReason:
        fields.GetText(&answer.reason, kMaxText);
        break;
      case kAnswerTransient:
        fields.GetFlag(&answer.transient);
        break;
      default:
        break;
    }
  }
  if (!fields.Has({kAnswerNode, kAnswerAttempt}) ||
      (!answer.fabric.empty() && !fields.Has({kAnswerLink}))) {
    return Malformed("answer");
  }
  return answer;
}

StatusOr<Attach> DecodeAttach(std::string_view frame) {
  StatusOr<std::string_view> body = FrameBody(kVersion, FrameKind::kAttach, frame);
  if (!body.ok()) return body.status();
  FieldReader fields(*body);
  Attach attach;
  while (fields.Next()) {
    if (fields.field() == kAttachAttempt) fields.Get(&attach.attempt);
    if (fields.field() == kAttachBytes) fields.GetText(&attach.bytes, fabric::kLargestAttachFrame);
  }
  if (!fields.Has({kAttachAttempt, kAttachBytes})) return Malformed("frame of an attachment");
  return attach;
}

StatusOr<Verdict> DecodeVerdict(std::string_view frame) {
  StatusOr<std::string_view> body = FrameBody(kVersion, FrameKind::kVerdict, frame);
  if (!body.ok()) return body.status();
  FieldReader fields(*body);
  Verdict verdict;
  while (fields.Next()) {
    switch (fields.field()) {
      case kVerdictAttempt:
        fields.Get(&verdict.attempt);
        break;
      case kVerdictEstablished:
        fields.GetFlag(&verdict.established);
        break;
      case kVerdictReason:
        fields.GetText(&verdict.reason, kMaxText);
        break;
      case kVerdictTransient:
        fields.GetFlag(&verdict.transient);
        break;
      default:
        break;
    }
  }
  if (!fields.Has({kVerdictAttempt, kVerdictEstablished})) return Malformed("verdict");
  return verdict;
}

}  // namespace ar_grpc::protocol
