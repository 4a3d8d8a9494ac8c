// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/mpi/messages.h"

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::mpi {
namespace {

Status Malformed(const char* what) {
  return Status(StatusCode::kInvalidArgument, std::string("malformed ") + what + " of grpc+mpi");
}

// Ranks and tags are non-negative ints.
bool IsInt(uint32_t value) { return value <= INT32_MAX; }

}  // namespace

std::string Encode(const Hello& hello) {
  Writer writer;
  writer.Put(hello.job);
  writer.Put(hello.rank);
  return writer.Take();
}

std::string Encode(const Watch& watch) {
  Writer writer;
  writer.Put(watch.id);
  writer.Put(watch.job);
  writer.Put(watch.rank);
  return writer.Take();
}

std::string Encode(const Bye& bye) {
  Writer writer;
  writer.Put(bye.watch);
  return writer.Take();
}

std::string Encode(const Ask& ask) {
  Writer writer;
  writer.Put(ask.job);
  writer.Put(ask.rank);
  writer.Put(ask.tag);
  return writer.Take();
}

std::string Encode(const Sent& sent) {
  Writer writer;
  writer.Put(sent.size);
  return writer.Take();
}

StatusOr<Hello> DecodeHello(std::string_view bytes) {
  Hello hello;
  Reader reader(bytes);
  if (!reader.Get(&hello.job) || !reader.Get(&hello.rank) || !IsInt(hello.rank) ||
      !reader.AtEnd()) {
    return Malformed("hello");
  }
  return hello;
}

StatusOr<Watch> DecodeWatch(std::string_view bytes) {
  Watch watch;
  Reader reader(bytes);
  if (!reader.Get(&watch.id) || !reader.Get(&watch.job) || !reader.Get(&watch.rank) ||
      !IsInt(watch.rank) || !reader.AtEnd()) {
    return Malformed("watch");
  }
  return watch;
}

StatusOr<Bye> DecodeBye(std::string_view bytes) {
  Bye bye;
  Reader reader(bytes);
  if (!reader.Get(&bye.watch) || !reader.AtEnd()) return Malformed("bye");
  return bye;
}

StatusOr<Ask> DecodeAsk(std::string_view bytes) {
  Ask ask;
  Reader reader(bytes);
  if (!reader.Get(&ask.job) || !reader.Get(&ask.rank) || !reader.Get(&ask.tag) ||
      !IsInt(ask.rank) || !IsInt(ask.tag) || !reader.AtEnd()) {
    return Malformed("question about a tensor");
  }
  return ask;
}

StatusOr<Sent> DecodeSent(std::string_view bytes) {
  Sent sent;
  Reader reader(bytes);
  if (!reader.Get(&sent.size) || !reader.AtEnd()) return Malformed("answer about a tensor");
  return sent;
}

}  // namespace ar_grpc::mpi
