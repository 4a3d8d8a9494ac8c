// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Chunks of a transfer, and the gate before its memory.

#include "third_party/ar_grpc/protocol/chunks.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/protocol/write_gate.h"

namespace {

using namespace ar_grpc;            // NOLINT
using namespace ar_grpc::protocol;  // NOLINT

#define CHECK(condition) fabric::testing::Check(condition, #condition)

void ChunksAreBoundedAndComplete() {
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{10}, uint64_t{95}}) {
    std::mutex mu;
    std::vector<int> touched(size, 0);
    int under_way = 0;
    int most = 0;
    int dones = 0;
    std::vector<std::function<void()>> later;
    TransferChunks(
        size, 10, 3,
        [&](uint64_t offset, uint64_t length, std::function<void(Status)> done) {
          std::lock_guard<std::mutex> lock(mu);
          for (uint64_t i = offset; i < offset + length; ++i) ++touched[i];
          most = std::max(most, ++under_way);
          later.push_back([&, done] {
            --under_way;
            done(OkStatus());
          });
        },
        [&](const Status& status) { dones += status.ok(); });
    while (!later.empty()) {
      auto next = std::move(later.front());
      later.erase(later.begin());
      next();
    }
    CHECK(dones == 1 && most <= 3);
    CHECK(std::count(touched.begin(), touched.end(), 1) == static_cast<long>(size));
  }
}

void ChunksStopAtTheFirstError() {
  int started = 0;
  Status outcome;
  int dones = 0;
  TransferChunks(
      1000, 10, 4,
      [&](uint64_t offset, uint64_t, std::function<void(Status)> done) {
        ++started;
        done(offset == 50 ? Status(StatusCode::kUnavailable, "gone") : OkStatus());
      },
      [&](const Status& status) {
        outcome = status;
        ++dones;
      });
  CHECK(started == 6 && dones == 1 && outcome.message() == "gone");
}

void ManyInlineChunksDoNotNest() {
  uint64_t bytes = 0;
  TransferChunks(
      1 << 20, 1, 4,
      [&](uint64_t, uint64_t length, std::function<void(Status)> done) {
        bytes += length;
        done(OkStatus());
      },
      [](const Status&) {});
  CHECK(bytes == 1 << 20);
}

void ChunksFromManyThreads() {
  std::atomic<uint64_t> bytes{0};
  std::atomic<int> dones{0};
  std::mutex mu;
  std::vector<std::thread> threads;
  TransferChunks(
      500, 1, 8,
      [&](uint64_t, uint64_t length, std::function<void(Status)> done) {
        std::lock_guard<std::mutex> lock(mu);
        threads.emplace_back([&, length, done] {
          bytes += length;
          done(OkStatus());
        });
      },
      [&](const Status& status) { dones += status.ok(); });
  while (dones == 0) std::this_thread::yield();
  std::lock_guard<std::mutex> lock(mu);
  for (std::thread& thread : threads) thread.join();
  CHECK(bytes == 500 && dones == 1);
}

// Else the transfer would end while others still write.
void AnEndThatIsToldTwiceCountsOnce() {
  std::vector<std::function<void(Status)>> ends;
  int dones = 0;
  TransferChunks(
      40, 10, 4,
      [&](uint64_t, uint64_t, std::function<void(Status)> done) {
        ends.push_back(std::move(done));
      },
      [&](const Status& status) { dones += status.ok(); });
  CHECK(ends.size() == 4);
  for (int i = 0; i < 4; ++i) ends[0](OkStatus());
  ends[0](Status(StatusCode::kUnavailable, "and an error then"));
  CHECK(dones == 0);
  for (int i = 1; i < 4; ++i) ends[i](OkStatus());
  CHECK(dones == 1);
  for (const auto& end : ends) end(OkStatus());
  CHECK(dones == 1);
}

// What starts chunks holds the memory that they write to; a fabric may hold an end for long.
void AnEndKeepsNothing() {
  std::function<void(Status)> kept;
  auto memory = std::make_shared<int>(0);
  const std::weak_ptr<int> alive = memory;
  bool gone = false;
  TransferChunks(
      10, 10, 1,
      [&, memory = std::move(memory)](uint64_t, uint64_t, std::function<void(Status)> done) {
        kept = std::move(done);
      },
      [&](const Status&) { gone = alive.expired(); });
  CHECK(!alive.expired());
  kept(OkStatus());
  CHECK(gone);
}

void NothingIsWrittenBehindAClosedGate() {
  // Under the thread sanitizer a write beside the owner's is a race.
  for (int round = 0; round < 200; ++round) {
    WriteGate gate;
    std::vector<int> memory(64, 0);
    std::atomic<int> writes{0};
    std::vector<std::thread> writers;
    for (int i = 0; i < 3; ++i) {
      writers.emplace_back([&, i] {
        while (gate.BeginWrite()) {
          memory[i] = i + 1;
          ++writes;
          gate.EndWrite();
        }
      });
    }
    while (writes.load() < round % 50) std::this_thread::yield();
    CHECK(!gate.closed());
    gate.Close();
    std::fill(memory.begin(), memory.end(), -1);
    const int written = writes.load();
    CHECK(gate.closed() && !gate.BeginWrite());
    // Again is as good as once.
    gate.Close();
    for (std::thread& writer : writers) writer.join();
    CHECK(writes.load() == written);
    CHECK(std::count(memory.begin(), memory.end(), -1) == 64);
  }
}

}  // namespace

int main() {
  fabric::testing::RunAll("chunks", {
                                        {"bounded", ChunksAreBoundedAndComplete},
                                        {"first error", ChunksStopAtTheFirstError},
                                        {"no nesting", ManyInlineChunksDoNotNest},
                                        {"many threads", ChunksFromManyThreads},
                                        {"told twice", AnEndThatIsToldTwiceCountsOnce},
                                        {"nothing kept", AnEndKeepsNothing},
                                        {"a closed gate", NothingIsWrittenBehindAClosedGate},
                                    });
  return 0;
}
