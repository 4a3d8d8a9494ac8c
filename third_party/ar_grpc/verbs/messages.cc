// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/verbs/messages.h"

#include <algorithm>

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::verbs {
namespace {

constexpr uint8_t kReleased = 0;
constexpr uint8_t kWritten = 1;

Status Malformed(const char* what) {
  return Status(StatusCode::kInvalidArgument, std::string("malformed ") + what + " of grpc+verbs");
}

void Put(const Destination& destination, Writer* writer) {
  writer->PutText(destination.key);
  writer->Put(destination.offset);
  writer->Put(destination.size);
}

bool Get(Reader* reader, Destination* destination) {
  return reader->GetText(&destination->key) && destination->key.size() <= fabric::kLargestKey &&
         reader->Get(&destination->offset) && reader->Get(&destination->size);
}

bool GetFrame(Reader* reader, std::string* frame) {
  return reader->GetText(frame) && frame->size() <= fabric::kLargestAttachFrame;
}

bool GetBool(Reader* reader, bool* value) {
  uint8_t byte = 0;
  if (!reader->Get(&byte) || byte > 1) return false;
  *value = byte != 0;
  return true;
}

}  // namespace

std::string Encode(const Introduce& introduce) {
  Writer writer;
  writer.Put(introduce.link);
  writer.PutText(introduce.frame);
  return writer.Take();
}

std::string Encode(const Introduced& introduced) {
  Writer writer;
  writer.Put(static_cast<uint8_t>(introduced.made));
  writer.PutText(introduced.frame);
  std::string bytes = writer.Take();
  bytes.resize(Introduced::kBytes);
  return bytes;
}

std::string Encode(const Ask& ask) {
  Writer writer;
  writer.Put(ask.link);
  writer.Put(ask.transfer);
  writer.Put(static_cast<uint8_t>(ask.destination.has_value()));
  if (ask.destination.has_value()) Put(*ask.destination, &writer);
  return writer.Take();
}

std::string Encode(const Written& written) {
  Writer writer;
  writer.Put(written.size);
  return writer.Take();
}

std::string Encode(const Held& held) {
  Writer writer;
  writer.Put(held.size);
  return writer.Take();
}

std::string Encode(const Fetch& fetch) {
  Writer writer;
  writer.Put(fetch.link);
  writer.Put(fetch.asked);
  writer.Put(fetch.transfer);
  Put(fetch.destination, &writer);
  return writer.Take();
}

std::string Encode(const Drop& drop) {
  Writer writer;
  writer.Put(drop.link);
  writer.Put(drop.asked);
  writer.Put(drop.offered);
  return writer.Take();
}

fabric::Message Encode(const Note& note) {
  Writer writer;
  writer.Put(note.written ? kWritten : kReleased);
  writer.Put(note.transfer);
  writer.Put(note.size);
  const std::string bytes = writer.Take();
  fabric::Message message;
  std::copy(bytes.begin(), bytes.end(), message.bytes.begin());
  return message;
}

StatusOr<Introduce> DecodeIntroduce(std::string_view bytes) {
  Introduce introduce;
  Reader reader(bytes);
  if (!reader.Get(&introduce.link) || !GetFrame(&reader, &introduce.frame) || !reader.AtEnd()) {
    return Malformed("introduction");
  }
  return introduce;
}

StatusOr<Introduced> DecodeIntroduced(std::string_view bytes) {
  Introduced introduced;
  Reader reader(bytes);
  if (bytes.size() != Introduced::kBytes || !GetBool(&reader, &introduced.made) ||
      !GetFrame(&reader, &introduced.frame)) {
    return Malformed("answer to an introduction");
  }
  return introduced;
}

StatusOr<Ask> DecodeAsk(std::string_view bytes) {
  Ask ask;
  bool has_destination = false;
  Reader reader(bytes);
  if (!reader.Get(&ask.link) || !reader.Get(&ask.transfer) || !GetBool(&reader, &has_destination) ||
      (has_destination && !Get(&reader, &ask.destination.emplace())) || !reader.AtEnd()) {
    return Malformed("question about a tensor");
  }
  return ask;
}

StatusOr<Written> DecodeWritten(std::string_view bytes) {
  Written written;
  Reader reader(bytes);
  if (!reader.Get(&written.size) || !reader.AtEnd()) return Malformed("answer about a tensor");
  return written;
}

StatusOr<Held> DecodeHeld(std::string_view bytes) {
  Held held;
  Reader reader(bytes);
  if (!reader.Get(&held.size) || !reader.AtEnd()) {
    return Malformed("answer about a tensor that is held");
  }
  return held;
}

StatusOr<Fetch> DecodeFetch(std::string_view bytes) {
  Fetch fetch;
  Reader reader(bytes);
  if (!reader.Get(&fetch.link) || !reader.Get(&fetch.asked) || !reader.Get(&fetch.transfer) ||
      !Get(&reader, &fetch.destination) || !reader.AtEnd()) {
    return Malformed("request for a tensor that is held");
  }
  return fetch;
}

StatusOr<Drop> DecodeDrop(std::string_view bytes) {
  Drop drop;
  Reader reader(bytes);
  if (!reader.Get(&drop.link) || !reader.Get(&drop.asked) || !reader.Get(&drop.offered) ||
      !reader.AtEnd()) {
    return Malformed("word about a tensor that is not wanted");
  }
  return drop;
}

StatusOr<Note> DecodeNote(const fabric::Message& message) {
  Note note;
  Reader reader(
      std::string_view(reinterpret_cast<const char*>(message.bytes.data()), message.bytes.size()));
  if (!GetBool(&reader, &note.written) || !reader.Get(&note.transfer) || !reader.Get(&note.size)) {
    return Malformed("note");
  }
  return note;
}

}  // namespace ar_grpc::verbs
