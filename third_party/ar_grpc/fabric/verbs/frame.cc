// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/frame.h"

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::fabric::verbs {
namespace {

// The order of the frames, the greeting behind them, and flow_control.h's windows and buffers.
constexpr uint8_t kVersion = 4;
constexpr uint8_t kHello = 1;
constexpr uint8_t kReady = 2;
constexpr uint8_t kBrochure = 3;
constexpr uint32_t kLargestNumber = (1 << 24) - 1;

Writer Begin(uint8_t kind) {
  Writer writer;
  writer.Put(kVersion);
  writer.Put(kind);
  return writer;
}

bool Begins(Reader* reader, uint8_t kind) {
  uint8_t version = 0;
  uint8_t found = 0;
  return reader->Get(&version) && reader->Get(&found) && version == kVersion && found == kind;
}

Status Malformed(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "the peer's " + what + " is malformed");
}

bool Sound(const Hello& hello) {
  return hello.number > 0 && hello.number <= kLargestNumber && hello.first_psn <= kLargestNumber &&
         hello.mtu >= abi::kSmallestMtu && hello.mtu <= abi::kLargestMtu;
}

}  // namespace

std::string Encode(const Hello& hello) {
  Writer writer = Begin(kHello);
  writer.Put(hello.number);
  writer.Put(hello.first_psn);
  writer.Put(hello.seal);
  writer.Put(hello.mtu);
  writer.Put(hello.most_reads);
  writer.Put(hello.most_served_reads);
  Encode(hello.address, &writer);
  return writer.Take();
}

StatusOr<Hello> DecodeHello(const std::string& frame) {
  Reader reader(frame);
  Hello hello;
  if (!Begins(&reader, kHello) || !reader.Get(&hello.number) || !reader.Get(&hello.first_psn) ||
      !reader.Get(&hello.seal) || !reader.Get(&hello.mtu) || !reader.Get(&hello.most_reads) ||
      !reader.Get(&hello.most_served_reads)) {
    return Malformed("frame about its queue pair");
  }
  StatusOr<Address> address = DecodeAddress(&reader);
  if (!address.ok()) return address.status();
  if (!reader.AtEnd() || !Sound(hello)) return Malformed("frame about its queue pair");
  hello.address = std::move(*address);
  return hello;
}

Writer BeginFrame(uint8_t kind) { return Begin(kind); }
bool BeginsAs(uint8_t kind, Reader* reader) { return Begins(reader, kind); }

std::string ReadyFrame() { return Begin(kReady).Take(); }

bool IsReadyFrame(const std::string& frame) { return frame == ReadyFrame(); }

std::string EncodeBrochure(const Address& address) {
  Writer writer = Begin(kBrochure);
  Encode(address, &writer);
  return writer.Take();
}

StatusOr<Address> DecodeBrochure(const std::string& brochure) {
  Reader reader(brochure);
  if (!Begins(&reader, kBrochure)) return Malformed("brochure");
  StatusOr<Address> address = DecodeAddress(&reader);
  if (address.ok() && !reader.AtEnd()) return Malformed("brochure");
  return address;
}

}  // namespace ar_grpc::fabric::verbs
