// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A connection of this process with itself, whose READs are always under way:
//   removal_program holds FILE    says what became of it while its device is deleted, and ends
//                                 in the middle once FILE is there
//   removal_program works         one READ
// Prints lines "name value".

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "tests/verbs/own_pair.h"
#include "tests/verbs/two_hosts.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr size_t kBytes = size_t{1} << 20;
constexpr uint64_t kSome = 20;

void Until(const std::function<bool()>& holds, const char* what) {
  const auto begin = std::chrono::steady_clock::now();
  while (!holds()) {
    Check(std::chrono::steady_clock::now() - begin < kPatience, what);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

void ReadOnce(const Pair& pair, const Memory& memory) {
  std::vector<uint8_t> into(kBytes);
  const Key key = Value(pair.owner->Export(memory.registration));
  CheckCode(GetNow(*pair.reader, key, 0, into.data(), kBytes), StatusCode::kOk);
  Check(std::equal(into.begin(), into.end(), memory.segment->data()), "wrong bytes");
}

[[noreturn]] void Hold(const std::string& file) {
  const Memory memory(kBytes);
  const Pair pair = Connected();
  std::atomic<uint64_t> reads{0};
  std::thread([&] {
    for (;; ++reads) ReadOnce(pair, memory);
  }).detach();
  Until([&] { return reads > kSome; }, "no READs");
  Say("reading", "yes");
  Until([&] { return std::filesystem::exists(file); }, "nobody deletes the device");
  const uint64_t before = reads;
  Until([&] { return reads > before + kSome; }, "READs do not go on");
  Say("reads", "go on");
  ReadOnce(Connected(), memory);
  Say("next", "ok");
  std::_Exit(0);
}

int Work() {
  const Status status = Get().Available();
  Say("available", status.message() + ".");
  if (!status.ok()) return 0;
  ReadOnce(Connected(), Memory(kBytes));
  Say("works", "yes");
  return 0;
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "holds" && argc == 3) Hold(argv[2]);
  if (what == "works" && argc == 2) return Work();
  std::fprintf(stderr, "removal_program holds FILE | works\n");
  return 2;
}
