// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The protocol layer alone: the table, the hello's bytes, chunks, and what is offered to whom.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/fabric/loopback/loopback.h"
#include "third_party/ar_grpc/protocol/chunks.h"
#include "third_party/ar_grpc/protocol/cost_model.h"
#include "third_party/ar_grpc/protocol/hello.h"
#include "third_party/ar_grpc/protocol/landing.h"
#include "third_party/ar_grpc/protocol/measure.h"
#include "third_party/ar_grpc/protocol/peers.h"

namespace {

using namespace ar_grpc;            // NOLINT
using namespace ar_grpc::protocol;  // NOLINT

int failures = 0;

void Expect(bool holds, const char* what, int line) {
  if (holds) return;
  std::fprintf(stderr, "line %d: %s does not hold\n", line, what);
  ++failures;
}
#define EXPECT(condition) Expect(condition, #condition, __LINE__)

std::string Hex(const std::string& bytes) {
  std::string text;
  for (const unsigned char byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", byte);
    text += two;
  }
  return text;
}

Figures Machine() {
  Figures figures;
  figures.copy_bytes_per_us = 8192;
  figures.message_us = 2;
  figures.wake_us = 6;
  figures.one_sided = true;
  return figures;
}

void GoldenTables() {
  const Figures figures = Machine();
  EXPECT(Print(Envelope(figures, true), figures, true) ==
         "       0 B .. 15.24 KiB   eager                    2.0 us\n"
         " 15.24 KiB .. any size    rendezvous               7.9 us\n");
  EXPECT(Print(Envelope(figures, false), figures, false) ==
         "       0 B .. 29.09 KiB   eager                    2.0 us\n"
         " 29.09 KiB .. any size    staged rendezvous       13.3 us\n");
  Figures tcp = figures;
  tcp.one_sided = false;
  const std::vector<Row> table = Envelope(tcp, false);
  EXPECT(table.size() == 2);
  EXPECT(table[0].protocol == Protocol::kEager);
  EXPECT(table[1].protocol == Protocol::kChunkedRendezvous && table[1].first == kEagerLimit + 1);
}

void TheTableIsTheLowerEnvelope() {
  std::srand(7);
  for (int machine = 0; machine < 50; ++machine) {
    Figures figures;
    figures.copy_bytes_per_us = 500 + std::rand() % 50000;
    figures.message_us = 0.2 + std::rand() % 100 / 10.0;
    figures.wake_us = 0.5 + std::rand() % 300 / 10.0;
    figures.one_sided = machine % 3 != 0;
    const bool in_region = machine % 2 == 0;
    const std::vector<Row> table = Envelope(figures, in_region);
    EXPECT(table[0].first == 0);
    for (size_t i = 1; i < table.size(); ++i) {
      EXPECT(table[i].first > table[i - 1].first);
      EXPECT(table[i].protocol != table[i - 1].protocol);
    }
    for (uint64_t size = 1; size < uint64_t{1} << 40; size = size * 5 / 4 + 1) {
      const double chosen = Cost(Choose(table, size), figures, size, in_region);
      EXPECT(std::isfinite(chosen));
      for (const Protocol other : {Protocol::kEager, Protocol::kRendezvous,
                                   Protocol::kStagedRendezvous, Protocol::kChunkedRendezvous}) {
        EXPECT(chosen <= Cost(other, figures, size, in_region));
      }
    }
  }
}

void WhatIsMeasuredIsUsable() {
  const Figures& figures = MeasuredSharedMemory();
  EXPECT(figures.one_sided && figures.copy_bytes_per_us > 100 && figures.wake_us > 0.1);
  EXPECT(figures.message_us > 0.01);
}

Hello SomeHello() {
  Hello hello;
  for (size_t i = 0; i < hello.node.size(); ++i) hello.node[i] = static_cast<uint8_t>(i);
  hello.fabrics = {"shm", "verbs"};
  return hello;
}

void HelloGoldenBytes() {
  const std::string frame = Encode(SomeHello());
  EXPECT(Hex(frame) ==
         "41522d675250430a"  // magic
         "0100"
         "0100"
         "1d000000"                          // version, kind, length
         "000102030405060708090a0b0c0d0e0f"  // node
         "02"
         "0300"
         "73686d"
         "0500"
         "7665726273");
  StatusOr<Hello> hello = DecodeHello(frame);
  EXPECT(hello.ok() && hello->node == SomeHello().node && hello->fabrics == SomeHello().fabrics);

  Answer answer;
  answer.node.fill(1);
  answer.fabric = "shm";
  answer.address = "@a";
  answer.token.fill(2);
  const std::string answered = Encode(answer);
  EXPECT(Hex(answered) ==
         "41522d675250430a"
         "0100"
         "0200"
         "2b000000"
         "01010101010101010101010101010101"
         "0300"
         "73686d"
         "0200"
         "4061"
         "02020202020202020202020202020202"
         "0000");
  StatusOr<Answer> same = DecodeAnswer(answered);
  EXPECT(same.ok() && same->fabric == "shm" && same->address == "@a" && same->token[5] == 2);

  Verdict verdict;
  verdict.established = true;
  EXPECT(Hex(Encode(verdict)) ==
         "41522d675250430a"
         "0100"
         "0300"
         "03000000"
         "01"
         "0000");
  StatusOr<Verdict> agreed = DecodeVerdict(Encode(verdict));
  EXPECT(agreed.ok() && agreed->established);
}

void ForeignBytesAreForeign() {
  EXPECT(LookAt("").look == Look::kUnfinished);
  EXPECT(LookAt("A").look == Look::kUnfinished);
  EXPECT(LookAt("P").look == Look::kForeign);
  EXPECT(LookAt("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").look == Look::kForeign);
  EXPECT(LookAt(std::string("\x16\x03\x01", 3)).look == Look::kForeign);
  EXPECT(LookAt(std::string("\x00\x00\x24\x04", 4)).look == Look::kForeign);
  std::string frame = Encode(SomeHello());
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT(LookAt(frame.substr(0, size)).look == Look::kUnfinished);
    EXPECT(!DecodeHello(frame.substr(0, size)).ok());
  }
  const Seen two = LookAt(frame + frame);
  EXPECT(two.look == Look::kFrame && two.size == frame.size());
  frame[14] = 1;  // 64 KiB more
  EXPECT(LookAt(frame).look == Look::kForeign);
}

void BadFramesAreRefused() {
  const std::string good = Encode(SomeHello());
  std::string frame = good;
  frame[8] = 2;
  EXPECT(DecodeHello(frame).status().code() == StatusCode::kUnimplemented);
  EXPECT(DecodeAnswer(good).status().code() == StatusCode::kInvalidArgument);
  // Every changed byte is an error or another value, never a crash (the sanitizers look).
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      frame = good;
      frame[i] = static_cast<char>(frame[i] ^ (1 << bit));
      (void)DecodeHello(frame).ok();
      (void)DecodeAnswer(frame).ok();
      (void)DecodeVerdict(frame).ok();
    }
  }
  Hello many = SomeHello();
  many.fabrics.assign(100, std::string(5000, 'x'));
  EXPECT(DecodeHello(Encode(many)).ok());
  EXPECT(Encode(many).size() <= kMaxFrame);
  Answer wordy;
  wordy.reason.assign(100000, 'r');
  EXPECT(DecodeAnswer(Encode(wordy)).ok() && Encode(wordy).size() <= kMaxFrame);
}

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
    EXPECT(dones == 1 && most <= 3);
    EXPECT(std::count(touched.begin(), touched.end(), 1) == static_cast<long>(size));
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
  EXPECT(started == 6 && dones == 1 && outcome.message() == "gone");
}

void NothingIsWrittenToMemoryThatWasTakenBack() {
  // Under the thread sanitizer a write beside the owner's is a race.
  for (int round = 0; round < 200; ++round) {
    Landing landing;
    std::vector<int> memory(64, 0);
    std::atomic<int> writes{0};
    std::vector<std::thread> writers;
    for (int i = 0; i < 3; ++i) {
      writers.emplace_back([&, i] {
        while (landing.Enter()) {
          memory[i] = i + 1;
          ++writes;
          landing.Leave();
        }
      });
    }
    while (writes.load() < round % 50) std::this_thread::yield();
    EXPECT(!landing.taken_back());
    landing.TakeBack();
    std::fill(memory.begin(), memory.end(), -1);
    const int written = writes.load();
    EXPECT(landing.taken_back() && !landing.Enter());
    // Again is as good as once.
    landing.TakeBack();
    for (std::thread& writer : writers) writer.join();
    EXPECT(writes.load() == written);
    EXPECT(std::count(memory.begin(), memory.end(), -1) == 64);
  }
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
  EXPECT(bytes == 1 << 20);
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
  EXPECT(bytes == 500 && dones == 1);
}

// Two ends of a loopback connection.
std::pair<std::unique_ptr<fabric::Connection>, std::unique_ptr<fabric::Connection>> Pair() {
  fabric::Context& context = fabric::loopback::Get();
  auto listener = std::move(*context.Listen());
  const Token token = NewToken();
  std::mutex mu;
  std::unique_ptr<fabric::Connection> ends[2];
  std::atomic<int> arrived{0};
  const auto take = [&](int end) {
    return [&, end](StatusOr<std::unique_ptr<fabric::Connection>> connection) {
      std::lock_guard<std::mutex> lock(mu);
      ends[end] = std::move(*connection);
      ++arrived;
    };
  };
  listener->Expect(token, take(0));
  EXPECT(context.Connect(listener->address(), token, 1000, take(1)).ok());
  while (arrived < 2) std::this_thread::yield();
  std::lock_guard<std::mutex> lock(mu);
  return {std::move(ends[0]), std::move(ends[1])};
}

Offered Held(std::shared_ptr<const void> keep) {
  Offered offered;
  offered.size = 1;
  offered.keep = std::move(keep);
  return offered;
}

void OffersLiveUntilReleased() {
  Peers& peers = Peers::Get();
  auto [server_end, client_end] = Pair();
  NodeId node = peers.self();
  const LinkId id = NewToken();
  auto server =
      std::make_shared<Link>(Role::kServer, node, "client", "loopback", id, std::move(server_end));
  auto client =
      std::make_shared<Link>(Role::kClient, node, "server", "loopback", id, std::move(client_end));
  const auto tensor = std::make_shared<int>(1);
  EXPECT(!peers.Offer(node, 1, Held(tensor)));
  peers.Up(server);
  peers.Up(client);
  EXPECT(peers.Any() && peers.ReadBy(node) == id && peers.Paths().at("server") == "loopback");
  EXPECT(peers.Talking(node) == client);
  // A loopback without a region: nothing can be read over it.
  EXPECT(peers.Reading(node, id) == nullptr);
  EXPECT(peers.Offer(node, 1, Held(tensor)) && tensor.use_count() == 2);
  EXPECT(!peers.Offer(node, 1, Held(tensor)));
  EXPECT(peers.Find(node, 1).has_value() && !peers.Find(node, 2).has_value());
  client->Release(1);
  EXPECT(server->Progress().ok());
  EXPECT(tensor.use_count() == 1 && peers.Count().offers_open == 0);

  // Released before it was offered: the receiver gave up.
  client->Release(2);
  EXPECT(server->Progress().ok());
  EXPECT(!peers.Offer(node, 2, Held(tensor)));
  EXPECT(tensor.use_count() == 1);

  // More releases than the ring of messages has room for arrive all the same.
  constexpr uint64_t kMany = 5000;
  for (uint64_t ticket = 10; ticket < 10 + kMany; ++ticket) {
    EXPECT(peers.Offer(node, ticket, Held(tensor)));
  }
  for (uint64_t ticket = 10; ticket < 10 + kMany; ++ticket) client->Release(ticket);
  EXPECT(client->Waiting());
  while (peers.Count().offers_open > 0) {
    EXPECT(server->Progress().ok());
    EXPECT(client->Flush().ok());
  }
  EXPECT(!client->Waiting() && tensor.use_count() == 1);

  // Also when the stream was full once and has room again: a release that must wait does not spin.
  const std::string piece(1 << 16, 'x');
  const iovec part = {const_cast<char*>(piece.data()), piece.size()};
  while (*client->Write(&part, 1) > 0) {
  }
  std::string drained(1 << 16, '\0');
  while (*server->connection()->Read(drained.data(), drained.size()) > 0) {
  }
  for (uint64_t ticket = 0; ticket < kMany; ++ticket) client->Release(1 << 20);
  EXPECT(client->Waiting());
  while (client->Waiting()) {
    EXPECT(server->Progress().ok());
    EXPECT(client->Flush().ok());
  }
  EXPECT(server->Progress().ok());

  // When the last link goes, so does what was offered; the peer sees that it was closed.
  EXPECT(peers.Offer(node, 3, Held(tensor)) && tensor.use_count() == 2);
  EXPECT(!client->closed());
  peers.Down(server);
  EXPECT(tensor.use_count() == 1 && client->closed() && !peers.ReadBy(node).has_value());
  EXPECT(peers.Talking(node) == nullptr);
  peers.Down(client);
  peers.Down(client);
  EXPECT(!peers.Any() && peers.Count().links == 0);
}

void AnUnknownMessageIsAnError() {
  auto [server_end, client_end] = Pair();
  fabric::Message message;
  message.bytes.fill(0xee);
  EXPECT(*client_end->Post(message));
  Link server(Role::kServer, Peers::Get().self(), "client", "loopback", LinkId{},
              std::move(server_end));
  EXPECT(server.Progress().code() == StatusCode::kInternal);
}

}  // namespace

int main() {
  GoldenTables();
  TheTableIsTheLowerEnvelope();
  WhatIsMeasuredIsUsable();
  HelloGoldenBytes();
  ForeignBytesAreForeign();
  BadFramesAreRefused();
  ChunksAreBoundedAndComplete();
  ChunksStopAtTheFirstError();
  NothingIsWrittenToMemoryThatWasTakenBack();
  ManyInlineChunksDoNotNest();
  ChunksFromManyThreads();
  OffersLiveUntilReleased();
  AnUnknownMessageIsAnError();
  return failures == 0 ? 0 : 1;
}
