// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/remote_key.h"

#include <string_view>

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::fabric::verbs {

namespace {

// Every bit of the body changes about half of the sum's.
uint64_t SumOf(std::string_view body, uint64_t seal) {
  uint64_t sum = seal;
  for (const char letter : body) {
    sum = (sum ^ static_cast<uint8_t>(letter)) * 0x9e3779b97f4a7c15u;
    sum ^= sum >> 29;
  }
  return sum;
}

}  // namespace

Key Encode(const RemoteKey& key, uint64_t seal) {
  Writer writer;
  writer.Put(key.registration_id);
  writer.Put(key.address);
  writer.Put(key.size);
  writer.Put(key.rkey);
  writer.Put(static_cast<uint8_t>(key.access));
  Key body = writer.Take();
  Writer sum;
  sum.Put(SumOf(body, seal));
  return body + sum.Take();
}

StatusOr<RemoteKey> DecodeKey(const Key& key, uint64_t seal) {
  Reader reader(key);
  RemoteKey decoded;
  uint8_t access = 0;
  uint64_t sum = 0;
  const bool whole = reader.Get(&decoded.registration_id) && reader.Get(&decoded.address) &&
                     reader.Get(&decoded.size) && reader.Get(&decoded.rkey) &&
                     reader.Get(&access) && reader.Get(&sum) && reader.AtEnd();
  if (!whole || sum != SumOf(std::string_view(key).substr(0, key.size() - sizeof(sum)), seal) ||
      access > static_cast<uint8_t>(Access::kWrite) ||
      decoded.size > UINT64_MAX - decoded.address) {
    return Status(StatusCode::kInvalidArgument,
                  "a key of RDMA memory that this connection's peer did not give");
  }
  decoded.access = static_cast<Access>(access);
  return decoded;
}

}  // namespace ar_grpc::fabric::verbs
