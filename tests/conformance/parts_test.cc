// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What fabrics are made of: the ring and its distrust, frames, operations, the registry. Exits 0
// when all of it holds.

#include <array>
#include <atomic>
#include <cstring>
#include <limits>
#include <thread>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/fabric/remote_memory.h"
#include "third_party/ar_grpc/fabric/ring.h"
#include "third_party/ar_grpc/fabric/token_frame.h"

namespace ar_grpc::fabric::testing {
namespace {

// A ring in plain memory, whose other end is this test's to forge.
struct TestRing {
  static constexpr size_t kCapacity = 64;
  RingControl control{};
  std::array<uint8_t, kCapacity> data{};
  std::array<std::unique_ptr<Doorbell>, 2> doorbells = Value(NewDoorbells());
  // Polls readable after either end was woken.
  Doorbell& woken = *doorbells[1];
  RingView view{&control, &control.reader_armed, data.data(), kCapacity, doorbells[0].get()};
};

StatusOr<size_t> Write(RingWriter& writer, const void* from, size_t size) {
  const iovec part = {const_cast<void*>(from), size};
  return writer.Write(&part, 1);
}

void ARingWrapsAround() {
  TestRing ring;
  RingWriter writer(ring.view);
  RingReader reader(ring.view);
  uint8_t next_in = 0;
  uint8_t next_out = 0;
  for (size_t round = 0; round < 1000; ++round) {
    std::array<uint8_t, 100> bytes;
    const size_t size = round * 7 % bytes.size();
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(next_in + i);
    next_in = static_cast<uint8_t>(next_in + Value(Write(writer, bytes.data(), size)));
    const size_t got = Value(reader.Read(bytes.data(), round * 5 % bytes.size()));
    for (size_t i = 0; i < got; ++i) Check(bytes[i] == next_out++, "the bytes in their order");
  }
}

void WakesOnlySleepers() {
  TestRing ring;
  RingWriter writer(ring.view);
  RingReader reader(ring.view);
  std::array<uint8_t, TestRing::kCapacity> bytes{};
  Value(Write(writer, bytes.data(), 1));
  Check(!Readable(ring.woken.fd(), 0), "the reader does not sleep");
  Value(reader.Read(bytes.data(), 1));
  Check(Value(reader.Arm()), "empty");
  Value(Write(writer, bytes.data(), 1));
  Check(Readable(ring.woken.fd(), 0), "the reader sleeps");
  ring.woken.Clear();
  Value(Write(writer, bytes.data(), 1));
  Check(!Readable(ring.woken.fd(), 0), "once is enough");
  Check(!Value(writer.Arm()), "it is not full");
  Check(Value(Write(writer, bytes.data(), 64)) == 62 && Value(writer.Arm()), "it is full");
  Value(reader.Read(bytes.data(), 31));
  Check(!Readable(ring.woken.fd(), 0), "more than half is left");
  Value(reader.Read(bytes.data(), 1));
  Check(Readable(ring.woken.fd(), 0), "half is left");
}

void AReaderCatchesALyingWriter() {
  // Against a ring from which 10 bytes were read of 20 written.
  for (const uint64_t lie : {uint64_t{20 + TestRing::kCapacity + 1}, uint64_t{19}, uint64_t{0},
                             std::numeric_limits<uint64_t>::max(), uint64_t{1} << 63}) {
    TestRing ring;
    RingWriter writer(ring.view);
    RingReader reader(ring.view);
    std::array<uint8_t, 2 * TestRing::kCapacity> bytes{};
    Value(Write(writer, bytes.data(), 20));
    Check(Value(reader.Readable()) == 20, "written");
    Value(reader.Read(bytes.data(), 10));
    ring.control.written = lie;
    CheckCode(reader.Readable().status(), StatusCode::kInternal, "the peer's write counter");
    CheckCode(reader.Arm().status(), StatusCode::kInternal, "the peer's write counter");
    CheckCode(reader.Read(bytes.data(), 100).status(), StatusCode::kInternal, std::to_string(lie));
    ring.control.writer_armed = 1;
    CheckCode(reader.Read(bytes.data(), 1).status(), StatusCode::kInternal, std::to_string(lie));
  }
}

void AWriterCatchesALyingReader() {
  for (const uint64_t lie : {uint64_t{TestRing::kCapacity + 1}, uint64_t{9},
                             std::numeric_limits<uint64_t>::max(), uint64_t{1} << 63}) {
    TestRing ring;
    RingWriter writer(ring.view);
    RingReader reader(ring.view);
    std::array<uint8_t, 2 * TestRing::kCapacity> bytes{};
    Value(Write(writer, bytes.data(), 54));
    Value(reader.Read(bytes.data(), 10));
    Check(Value(Write(writer, bytes.data(), 100)) == 20, "full, 10 of 74 read");
    ring.control.consumed = lie == TestRing::kCapacity + 1 ? 75 : lie;
    CheckCode(Write(writer, bytes.data(), 1).status(), StatusCode::kInternal,
              "the peer's read counter");
    CheckCode(writer.Arm().status(), StatusCode::kInternal, "the peer's read counter");
    CheckCode(writer.WriteAll(bytes.data(), 8).status(), StatusCode::kInternal,
              "the peer's read counter");
  }
}

void OwnCountersAreNotReadBack() {
  TestRing ring;
  RingWriter writer(ring.view);
  std::array<uint8_t, 2 * TestRing::kCapacity> bytes{};
  Value(Write(writer, bytes.data(), 10));
  ring.control.written = 1 << 20;
  Check(Value(Write(writer, bytes.data(), 100)) == 54, "a peer that overwrites it harms nobody");
}

void TokenFramesAreRead() {
  TokenFrame frame;
  frame.version = 7;
  frame.address = "@somewhere,/else";
  frame.token = NewToken();
  const std::string bytes = EncodeTokenFrame(frame);
  Check(bytes.size() <= kLargestAttachFrame, "a frame's size");
  const TokenFrame read = Value(DecodeTokenFrame(bytes));
  Check(read.version == 7 && read.address == frame.address && read.token == frame.token, "same");
  for (size_t size = 0; size < bytes.size(); ++size) {
    CheckCode(DecodeTokenFrame(bytes.substr(0, size)).status(), StatusCode::kInvalidArgument);
  }
  CheckCode(DecodeTokenFrame(bytes + "x").status(), StatusCode::kInvalidArgument);
  frame.address = std::string(kLargestTokenAddress, 'a');
  Check(EncodeTokenFrame(frame).size() <= kLargestAttachFrame, "a frame's size");
  CheckOk(DecodeTokenFrame(EncodeTokenFrame(frame)).status());
  frame.address += "a";
  CheckCode(DecodeTokenFrame(EncodeTokenFrame(frame)).status(), StatusCode::kInvalidArgument);
  frame = TokenFrame();
  frame.version = 0;
  CheckCode(DecodeTokenFrame(EncodeTokenFrame(frame)).status(), StatusCode::kInvalidArgument);
}

// Whoever waits for the end of operations is told once, after all that were under way.
void TheLastOperationTellsWhoWaits() {
  Operations operations;
  int idle = 0;
  operations.WhenIdle([&idle] { ++idle; });
  Check(idle == 1, "none is under way");
  operations.Enter();
  operations.Enter();
  operations.WhenIdle([&idle] { ++idle; });
  operations.Leave();
  Check(idle == 1, "one is under way");
  operations.Leave();
  Check(idle == 2, "none is");
  for (int round = 0; round < 2000 / kSlowdown; ++round) {
    auto shared = std::make_shared<Operations>();
    std::atomic<bool> closed{false};
    std::atomic<bool> fenced{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, shared] {
        for (int j = 0; j < 20; ++j) {
          shared->Enter();
          if (!closed) Check(!fenced, "an operation after the fence");
          shared->Leave();
        }
      });
    }
    closed = true;
    shared->WhenIdle([&fenced] { fenced = true; });
    for (std::thread& thread : threads) thread.join();
    Check(fenced, "told");
  }
}

std::string Parsed(const char* value) {
  std::string text;
  for (const std::string& name : Value(ParseFabrics(value))) {
    text += (text.empty() ? "" : ",") + name;
  }
  return text;
}

void FabricsAreParsed() {
  const std::string all = Parsed(nullptr);
  Check(all == "shm,verbs,tcp" && Parsed("") == all, "all of them");
  Check(Parsed("tcp") == "tcp" && Parsed("shm") == "shm", "one");
  Check(Parsed("tcp,shm") == "tcp,shm", "in the order given");
  Check(Parsed("shm,shm,tcp") == "shm,tcp", "each once");
  Check(Parsed("^shm") == "verbs,tcp" && Parsed("^tcp") == "shm,verbs", "all but one");
  for (const char* const wrong : {"smh", ",shm", "shm, tcp", "^", "^smh", "shm,^tcp", ",", "SHM"}) {
    CheckCode(ParseFabrics(wrong).status(), StatusCode::kInvalidArgument,
              std::string("AR_GRPC_FABRICS=") + wrong);
    CheckCode(ParseFabrics(wrong).status(), StatusCode::kInvalidArgument, "shm, verbs, tcp");
  }
  CheckCode(ParseFabrics("^shm,verbs,tcp").status(), StatusCode::kInvalidArgument, "no fabric");
  Check(Find("shm") != nullptr && Find("verbs") != nullptr && Find("tcp") == nullptr &&
            Find("smh") == nullptr,
        "found");
}

}  // namespace
}  // namespace ar_grpc::fabric::testing

int main() {
  using namespace ar_grpc::fabric::testing;
  const std::vector<Case> cases = {
      {"a ring wraps around", ARingWrapsAround},
      {"wakes only sleepers", WakesOnlySleepers},
      {"a reader catches a lying writer", AReaderCatchesALyingWriter},
      {"a writer catches a lying reader", AWriterCatchesALyingReader},
      {"own counters are not read back", OwnCountersAreNotReadBack},
      {"token frames are read", TokenFramesAreRead},
      {"the last operation tells who waits", TheLastOperationTellsWhoWaits},
      {"fabrics are parsed", FabricsAreParsed},
  };
  RunAll("parts", cases);
  std::printf("%zu cases over parts\n", cases.size());
  return 0;
}
