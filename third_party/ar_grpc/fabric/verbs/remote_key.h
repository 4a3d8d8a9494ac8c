// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_REMOTE_KEY_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_REMOTE_KEY_H_

#include <cstdint>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::fabric::verbs {

// What a Key of this fabric says.
struct RemoteKey {
  uint64_t registration_id = 0;  // tells registrations apart: devices use an rkey again
  uint64_t address = 0;
  uint64_t size = 0;
  uint32_t rkey = 0;
  Access access = Access::kRead;
};

// A connection's end seals what it gives with a number that its peer knows: what was given over
// another connection, or has a wrong bit, is noticed before the device sees it, which would break
// the connection over it. No protection from a peer that means it: only the device is.
Key Encode(const RemoteKey& key, uint64_t seal);
// kInvalidArgument for anything that no Encode with this seal made.
StatusOr<RemoteKey> DecodeKey(const Key& key, uint64_t seal);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_REMOTE_KEY_H_
