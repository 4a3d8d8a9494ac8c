// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// How often a peer is woken, by the kernel's own count: each time is a system call here and a
// thread there.

#include <fstream>

#include "tests/conformance/shm_support.h"

namespace ar_grpc::fabric::testing {
namespace {

// What is on an eventfd.
uint64_t CountOn(const UniqueFd& fd) {
  std::ifstream info("/proc/self/fdinfo/" + std::to_string(fd.get()));
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("eventfd-count:", 0) == 0) return std::stoull(line.substr(14), nullptr, 16);
  }
  Check(false, "no eventfd");
  return 0;
}

void APeerIsWokenOnceASleep() {
  Forger forger;
  Outcome outcome = Forge(forger);
  const auto connection = Value(std::move(outcome.accepted));
  uint64_t before = CountOn(forger.wake);
  const auto rings = [&forger, &before] {
    const uint64_t now = CountOn(forger.wake);
    return std::exchange(before, now) - now;
  };
  const auto send = [&connection](int times) {
    for (int i = 0; i < times; ++i) {
      Check(Value(WriteText(*connection, "x")) == 1, "written");
      Check(Value(connection->Post(Message())), "posted");
    }
  };
  Check(rings() == 0, "nothing was sent yet");
  send(50);
  Check(rings() == 0, "a reader that does not sleep");
  for (int sleep = 0; sleep < 10; ++sleep) {
    forger.header().bytes[1].reader_armed = 1;
    send(5);
    Check(rings() == 1, "a reader that slept");
  }

  // What is read makes room, of which a writer hears that waits for it, and once.
  ConnectionHeader& header = forger.header();
  header.bytes[0].written = kRingBytes;
  Check(Value(ReadText(*connection, 1000)).size() == 1000 && rings() == 0, "nobody waits for room");
  header.bytes[0].writer_armed = 1;
  Check(Value(ReadText(*connection, 1000)).size() == 1000 && rings() == 0, "it is nearly full yet");
  while (!Value(ReadText(*connection, 1000)).empty()) {
  }
  Check(rings() == 1, "a writer that waited");

  connection->Close(nullptr);
  connection->Close(nullptr);
  Check(rings() == 1, "the end is told once");
}

}  // namespace

std::vector<Case> ShmWakeCases() {
  return {{"a peer is woken once a sleep", APeerIsWokenOnceASleep}};
}

}  // namespace ar_grpc::fabric::testing
