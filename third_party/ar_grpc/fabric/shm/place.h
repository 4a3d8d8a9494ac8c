// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_PLACE_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_PLACE_H_

#include <cstdint>
#include <string>

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc::fabric::shm {

// Where a process runs, as far as that says who can share memory with it: shm's brochure. What the
// system does not tell is empty, and is not compared.
struct Place {
  std::string boot_id;         // of the kernel that runs
  uint32_t user = 0;           // the effective one
  std::string network;         // the network namespace
  bool has_directory = false;  // whether AR_GRPC_SHM_DIR is set
  std::string directory;       // it, cut to kLargestPlaceText bytes; for messages
};
inline constexpr size_t kLargestPlaceText = 128;

Place ThisPlace();

// Version (2), user (4), flag (1), then each text as 2 bytes of length and the bytes.
std::string Encode(const Place& place);
// kInvalidArgument for what is no such brochure.
StatusOr<Place> DecodePlace(const std::string& bytes);

// kUnavailable says, in words for a user, what keeps the two apart.
Status CanMeet(const Place& here, const Place& there);

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_PLACE_H_
