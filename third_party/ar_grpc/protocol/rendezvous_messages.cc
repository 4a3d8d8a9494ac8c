// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/rendezvous_messages.h"

#include <utility>

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::protocol {
namespace {

Status Malformed(const char* what) {
  return Status(StatusCode::kInvalidArgument, std::string("malformed ") + what);
}

}  // namespace

std::string Encode(const Ask& ask) {
  Writer writer;
  writer.Put(ask.receiver);
  writer.Put(ask.ticket);
  return writer.Take();
}

std::string Encode(const Offer& offer) {
  Writer writer;
  writer.Put(offer.sender);
  writer.Put(offer.ticket);
  writer.Put(offer.size);
  writer.Put(static_cast<uint8_t>(offer.readable.has_value()));
  if (offer.readable.has_value()) {
    writer.Put(offer.readable->link);
    writer.PutText(offer.readable->key);
    writer.Put(offer.readable->offset);
  }
  return writer.Take();
}

std::string Encode(const ChunkRequest& request) {
  Writer writer;
  writer.Put(request.receiver);
  writer.Put(request.ticket);
  writer.Put(request.offset);
  writer.Put(request.length);
  return writer.Take();
}

StatusOr<Ask> DecodeAsk(std::string_view bytes) {
  Ask ask;
  Reader reader(bytes);
  if (!reader.Get(&ask.receiver) || !reader.Get(&ask.ticket) || !reader.AtEnd()) {
    return Malformed("question about a tensor");
  }
  return ask;
}

StatusOr<Offer> DecodeOffer(std::string_view bytes) {
  Offer offer;
  uint8_t readable = 0;
  Reader reader(bytes);
  if (!reader.Get(&offer.sender) || !reader.Get(&offer.ticket) || !reader.Get(&offer.size) ||
      !reader.Get(&readable) || readable > 1) {
    return Malformed("offer of a tensor");
  }
  if (readable == 1) {
    Offer::Readable where;
    if (!reader.Get(&where.link) || !reader.GetText(&where.key) ||
        where.key.size() > fabric::kLargestKey || !reader.Get(&where.offset) ||
        where.offset > UINT64_MAX - offer.size) {
      return Malformed("offer of a tensor");
    }
    offer.readable = std::move(where);
  }
  if (!reader.AtEnd()) return Malformed("offer of a tensor");
  return offer;
}

StatusOr<ChunkRequest> DecodeChunkRequest(std::string_view bytes) {
  ChunkRequest request;
  Reader reader(bytes);
  if (!reader.Get(&request.receiver) || !reader.Get(&request.ticket) ||
      !reader.Get(&request.offset) || !reader.Get(&request.length) || !reader.AtEnd()) {
    return Malformed("request for a chunk of a tensor");
  }
  return request;
}

}  // namespace ar_grpc::protocol
