// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What shared memory's ends say to each other: brochures, attach frames, and the packets of the
// socket where they meet.

#include "tests/fuzz/fuzz.h"
#include "third_party/ar_grpc/fabric/shm/attach.h"
#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"
#include "third_party/ar_grpc/fabric/shm/place.h"
#include "third_party/ar_grpc/fabric/token_frame.h"

namespace ar_grpc::fabric {
namespace {

void TakeAddress(const std::string& address) {
  const auto parsed = shm::ParseAddress(address);
  if (!parsed.ok()) return;
  fuzz::Must(!parsed->empty(), "an address has a part");
  for (const std::string& here : shm::AddressesHere(*parsed, "/run/ar")) {
    const bool fits = here[0] == '@' ||
                      (here.substr(0, 8) == "/run/ar/" && here.find('/', 8) == std::string::npos);
    fuzz::Must(fits, "nothing is looked for outside of the folder");
  }
}

}  // namespace
}  // namespace ar_grpc::fabric

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ar_grpc::fabric;  // NOLINT: an entry point
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const auto token = DecodeTokenFrame(bytes);
  if (token.ok()) {
    ar_grpc::fuzz::Must(EncodeTokenFrame(*token) == bytes, "a frame is written as it came");
    TakeAddress(token->address);
  }
  TakeAddress(bytes);
  const auto place = shm::DecodePlace(bytes);
  if (place.ok()) {
    ar_grpc::fuzz::Must(place->boot_id.size() <= shm::kLargestPlaceText &&
                            place->network.size() <= shm::kLargestPlaceText &&
                            place->directory.size() <= shm::kLargestPlaceText,
                        "texts are short");
    static_cast<void>(shm::CanMeet(*place, shm::Place()));
  }
  using ar_grpc::fuzz::RoundTrip;
  RoundTrip(bytes, [](const std::string& each) { return shm::DecodePlace(each); });
  RoundTrip(bytes, [](const std::string& each) { return shm::DecodeRequest(each); });
  if (const auto answer = shm::DecodeAnswer(bytes); answer.ok()) {
    const bool says = answer->status.ok() || answer->status.message().find("refused") == 9;
    ar_grpc::fuzz::Must(says, "whose words these are");
  }
  RoundTrip(bytes, [](const std::string& each) { return shm::DecodeAnnouncement(each); });
  return 0;
}
