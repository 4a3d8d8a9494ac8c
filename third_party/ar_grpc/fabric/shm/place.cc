// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/place.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::fabric::shm {
namespace {

constexpr uint16_t kPlaceVersion = 1;

Status Apart(const std::string& why) { return Status(StatusCode::kUnavailable, why); }

bool Differ(const std::string& one, const std::string& other) {
  return !one.empty() && !other.empty() && one != other;
}

}  // namespace

Place ThisPlace() {
  Place place;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> place.boot_id;
  place.boot_id.resize(std::min(place.boot_id.size(), kLargestPlaceText));
  place.user = geteuid();
  std::array<char, kLargestPlaceText> network;
  const ssize_t length = readlink("/proc/self/ns/net", network.data(), network.size());
  if (length > 0) place.network.assign(network.data(), static_cast<size_t>(length));
  if (const char* const directory = std::getenv("AR_GRPC_SHM_DIR")) {
    place.directory = std::string(directory).substr(0, kLargestPlaceText);
    place.has_directory = !place.directory.empty();
  }
  return place;
}

std::string Encode(const Place& place) {
  Writer writer;
  writer.Put(kPlaceVersion);
  writer.Put(place.user);
  writer.Put(static_cast<uint8_t>(place.has_directory));
  writer.PutText(place.boot_id);
  writer.PutText(place.network);
  writer.PutText(place.directory);
  return writer.Take();
}

StatusOr<Place> DecodePlace(const std::string& bytes) {
  Reader reader(bytes);
  Place place;
  uint16_t version = 0;
  uint8_t has_directory = 0;
  if (!reader.Get(&version) || version != kPlaceVersion || !reader.Get(&place.user) ||
      !reader.Get(&has_directory) || has_directory > 1 || !reader.GetText(&place.boot_id) ||
      !reader.GetText(&place.network) || !reader.GetText(&place.directory) || !reader.AtEnd() ||
      place.boot_id.size() > kLargestPlaceText || place.network.size() > kLargestPlaceText ||
      place.directory.size() > kLargestPlaceText) {
    return Status(StatusCode::kInvalidArgument, "a malformed brochure of shared memory");
  }
  place.has_directory = has_directory == 1;
  return place;
}

Status CanMeet(const Place& here, const Place& there) {
  if (Differ(here.boot_id, there.boot_id)) return Apart("the peer is on another host");
  if (here.user != there.user) {
    return Apart("the peer runs as user " + std::to_string(there.user) + ", this process as user " +
                 std::to_string(here.user));
  }
  if (!Differ(here.network, there.network)) return Status();
  if (here.has_directory && there.has_directory) return Status();
  const char* const who = here.has_directory    ? "the peer has"
                          : there.has_directory ? "this process has"
                                                : "they have";
  return Apart(std::string("the peer is in another network namespace of this host, and ") + who +
               " no directory to meet in: set AR_GRPC_SHM_DIR to one that both share");
}

}  // namespace ar_grpc::fabric::shm
