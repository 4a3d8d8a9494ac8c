// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/iwarp_frame.h"

#include <utility>

#include "third_party/ar_grpc/fabric/verbs/frame.h"

namespace ar_grpc::fabric::verbs {
namespace {

constexpr uint8_t kInvitation = 4;
constexpr uint8_t kIntroduction = 5;
constexpr uint8_t kConnected = 6;

Status Malformed() {
  return Status(StatusCode::kInvalidArgument, "the peer's frame about iWARP is malformed");
}

void Put(const ReadDepth& reads, Writer* writer) {
  writer->Put(reads.most);
  writer->Put(reads.most_served);
}

bool Get(Reader* reader, ReadDepth* reads) {
  return reader->Get(&reads->most) && reader->Get(&reads->most_served);
}

}  // namespace

std::string Encode(const IwarpInvitation& invitation) {
  Writer writer = BeginFrame(kInvitation);
  writer.Put(invitation.seal);
  Put(invitation.reads, &writer);
  writer.Put(invitation.token);
  Encode(invitation.address, &writer);
  for (const uint16_t port : invitation.ports) writer.Put(port);
  return writer.Take();
}

StatusOr<IwarpInvitation> DecodeInvitation(const std::string& frame) {
  Reader reader(frame);
  IwarpInvitation invitation;
  if (!BeginsAs(kInvitation, &reader) || !reader.Get(&invitation.seal) ||
      !Get(&reader, &invitation.reads) || !reader.Get(&invitation.token)) {
    return Malformed();
  }
  StatusOr<Address> address = DecodeAddress(&reader);
  if (!address.ok()) return address.status();
  if (address->link_layer != kLinkLayerIwarp) return Malformed();
  for (size_t i = 0; i < address->names.size(); ++i) {
    uint16_t port = 0;
    if (!reader.Get(&port) || port == 0) return Malformed();
    invitation.ports.push_back(port);
  }
  if (!reader.AtEnd()) return Malformed();
  invitation.address = std::move(*address);
  return invitation;
}

std::string Encode(const IwarpIntroduction& introduction) {
  Writer writer = BeginFrame(kIntroduction);
  writer.Put(introduction.token);
  Put(introduction.reads, &writer);
  return writer.Take();
}

StatusOr<IwarpIntroduction> DecodeIntroduction(const std::string& data) {
  Reader reader(data);
  IwarpIntroduction introduction;
  if (!BeginsAs(kIntroduction, &reader) || !reader.Get(&introduction.token) ||
      !Get(&reader, &introduction.reads)) {
    return Malformed();
  }
  return introduction;
}

std::string ConnectedFrame(uint64_t seal) {
  Writer writer = BeginFrame(kConnected);
  writer.Put(seal);
  return writer.Take();
}

StatusOr<uint64_t> DecodeConnected(const std::string& frame) {
  Reader reader(frame);
  uint64_t seal = 0;
  if (!BeginsAs(kConnected, &reader) || !reader.Get(&seal) || !reader.AtEnd()) return Malformed();
  return seal;
}

}  // namespace ar_grpc::fabric::verbs
