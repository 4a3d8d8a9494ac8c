// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// One suite for every fabric: what fabric.h promises. Exits 0 when all of it holds.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/fabric/loopback/loopback.h"
#include "third_party/ar_grpc/fabric/shm/shm.h"

namespace ar_grpc::fabric::testing {
namespace {

constexpr size_t kRegionSize = size_t{4} << 20;

// The byte that belongs at a position of a stream: any that is lost, doubled or moved shows.
uint8_t Pattern(uint64_t position, uint64_t seed) {
  return static_cast<uint8_t>(((position + seed) * 0x9E3779B97F4A7C15u) >> 56);
}

// Sends `total` bytes in pieces of random sizes and checks as many that come, on one thread that
// sleeps whenever it can do neither.
void Exchange(Connection& connection, uint64_t total, uint64_t send_seed, uint64_t receive_seed) {
  std::mt19937_64 random(send_seed);
  const auto any_size = [&random] { return size_t{1} << (random() % 18); };
  uint64_t sent = 0;
  uint64_t received = 0;
  std::vector<uint8_t> outgoing(size_t{1} << 19);
  std::vector<uint8_t> incoming(size_t{1} << 18);
  while (sent < total || received < total) {
    bool stuck = true;
    if (sent < total) {
      iovec parts[3];
      size_t size = 0;
      for (iovec& part : parts) {
        part.iov_base = outgoing.data() + size;
        part.iov_len = std::min<uint64_t>(any_size() - 1, total - sent - size);
        size += part.iov_len;
      }
      for (size_t i = 0; i < size; ++i) outgoing[i] = Pattern(sent + i, send_seed);
      const size_t wrote = Value(connection.Write(parts, 3));
      sent += wrote;
      if (wrote > 0 || size == 0) stuck = false;
    }
    if (received < total) {
      const size_t got = Value(connection.Read(incoming.data(), any_size()));
      for (size_t i = 0; i < got; ++i) {
        Check(incoming[i] == Pattern(received + i, receive_seed), "the stream's bytes");
      }
      received += got;
      if (got > 0) stuck = false;
    }
    if (!stuck) continue;
    if (sent < total && !Value(connection.ArmWrite())) continue;
    if (received < total && !Value(connection.ArmRead())) continue;
    AwaitWake(connection);
  }
}

void StreamsKeepOrderBothWays(Context& context) {
  const uint64_t total = (uint64_t{64} << 20) / kSlowdown;
  Pair pair = Attach(context);
  std::thread other([&] { Exchange(*pair.acceptor, total, 1, 2); });
  Exchange(*pair.connector, total, 2, 1);
  other.join();
  for (const auto* end : {&pair.connector, &pair.acceptor}) {
    Check((*end)->stream_bytes_sent() == total, "bytes sent are counted");
    Check((*end)->stream_bytes_received() == total, "bytes received are counted");
  }
}

void FullStreamTakesNothingUntilDrained(Context& context) {
  Pair pair = Attach(context);
  const std::string piece(10007, 'x');
  size_t written = 0;
  while (const size_t wrote = Value(WriteText(*pair.connector, piece))) written += wrote;
  Check(written > piece.size(), "a stream holds something");
  Check(Value(pair.acceptor->Readable()) == written, "all of it is there to be read");
  Check(Value(pair.connector->ArmWrite()), "a full stream is worth sleeping for");
  Check(!Readable(pair.connector->wake_fd(), 20), "not woken while it is full");
  Check(Value(WriteText(*pair.connector, piece)) == 0, "still full");
  Check(Value(pair.connector->ArmWrite()), "armed anew");
  size_t drained = 0;
  while (const size_t got = Value(ReadText(*pair.acceptor, 4096)).size()) drained += got;
  Check(drained == written, "all of it was read");
  AwaitWake(*pair.connector);
  Check(!Value(pair.connector->ArmWrite()), "room again: no reason to sleep");
  Check(Value(WriteText(*pair.connector, piece)) == piece.size(), "taken again");
  Check(Value(pair.acceptor->Readable()) == piece.size(), "and there");
}

void ArmingIsRefusedWhenThereIsSomething(Context& context) {
  Pair pair = Attach(context);
  Check(Value(pair.acceptor->ArmRead()), "nothing to read");
  Check(Value(WriteText(*pair.connector, "a")) == 1, "written");
  AwaitWake(*pair.acceptor);
  Check(!Value(pair.acceptor->ArmRead()), "a byte to read");
  Check(Value(ReadText(*pair.acceptor, 10)) == "a", "read");
  Check(Value(ReadText(*pair.acceptor, 10)).empty(), "empty");
  Check(Value(pair.acceptor->ArmRead()), "nothing to read");
  Check(Value(pair.connector->Post(Message{})), "posted");
  AwaitWake(*pair.acceptor);
  Check(!Value(pair.acceptor->ArmRead()), "a message to take");
  Message message;
  Check(Value(pair.acceptor->Take(&message)), "taken");
  Check(!Readable(pair.acceptor->wake_fd(), 0), "cleared");
  Check(Value(WriteText(*pair.connector, "b")) == 1, "written");
  Check(!Readable(pair.acceptor->wake_fd(), 20), "who has not armed is not woken");
}

// Alternates between stream and messages; sleeps whenever there is nothing yet.
void PingPong(Connection& connection, int rounds, bool starts) {
  std::mt19937 random(starts);
  for (int i = 0; i < rounds; ++i) {
    for (const bool sends : {starts, !starts}) {
      // Now and then a pause, so that either end is found awake, asleep and in between.
      for (volatile unsigned spin = random() % 512; spin > 0; spin = spin - 1) {
      }
      Message message;
      uint32_t number = static_cast<uint32_t>(i);
      if (sends && i % 2 == 0) {
        const iovec part = {&number, sizeof(number)};
        Check(Value(connection.Write(&part, 1)) == sizeof(number), "room for a word");
      } else if (sends) {
        std::memcpy(message.bytes.data(), &number, sizeof(number));
        Check(Value(connection.Post(message)), "room for a message");
      } else {
        while (true) {
          const bool got = i % 2 == 0 ? Value(connection.Read(&number, sizeof(number))) > 0
                                      : Value(connection.Take(&message));
          if (got) break;
          if (Value(connection.ArmRead())) AwaitWake(connection);
        }
        if (i % 2 != 0) std::memcpy(&number, message.bytes.data(), sizeof(number));
        Check(number == static_cast<uint32_t>(i), "the numbers come in order");
      }
    }
  }
}

void NoWakeUpIsLost(Context& context) {
  const int rounds = 100000 / kSlowdown;
  Pair pair = Attach(context);
  std::thread other([&] { PingPong(*pair.acceptor, rounds, false); });
  PingPong(*pair.connector, rounds, true);
  other.join();
}

// A writer that is always ahead: it sleeps at every full ring, for messages as for the stream.
void NoWriterIsForgotten(Context& context) {
  const uint32_t count = 200000 / kSlowdown;
  Pair pair = Attach(context);
  std::thread other([&] {
    Message message;
    for (uint32_t i = 0; i < count; ++i) {
      std::memcpy(message.bytes.data(), &i, sizeof(i));
      while (!Value(pair.acceptor->Post(message))) {
        if (Value(pair.acceptor->ArmWrite())) AwaitWake(*pair.acceptor);
      }
    }
  });
  Message message;
  for (uint32_t i = 0; i < count; ++i) {
    while (!Value(pair.connector->Take(&message))) {
      if (Value(pair.connector->ArmRead())) AwaitWake(*pair.connector);
    }
    Check(std::memcmp(message.bytes.data(), &i, sizeof(i)) == 0, "messages come in order");
  }
  other.join();
}

void MessagesFullAndEmpty(Context& context) {
  Pair pair = Attach(context);
  Message message;
  Check(!Value(pair.acceptor->Take(&message)), "none yet");
  uint8_t posted = 0;
  for (message.bytes.fill(0); posted < 255 && Value(pair.connector->Post(message));) {
    message.bytes.fill(++posted);
  }
  Check(posted >= 16, "some fit");
  while (Value(pair.connector->Post(message))) {
  }
  Check(Value(pair.connector->ArmWrite()), "full");
  Check(Value(WriteText(*pair.connector, "stream")) == 6, "the stream has room all the same");
  Check(Value(pair.connector->ArmWrite()), "the messages are full still");
  for (uint8_t i = 0; i < posted; ++i) {
    Check(Value(pair.acceptor->Take(&message)), "taken");
    for (const uint8_t byte : message.bytes) Check(byte == i, "a message's bytes");
  }
  while (Value(pair.acceptor->Take(&message))) {
  }
  AwaitWake(*pair.connector);
  Check(Value(pair.connector->Post(message)), "room again");
  Check(Value(ReadText(*pair.acceptor, 10)) == "stream", "and the stream is its own");
}

// A stream that was full once says nothing of the messages.
void ArmedForMessagesWhileTheStreamHasRoom(Context& context) {
  Pair pair = Attach(context);
  Check(!Value(pair.connector->ArmPost()), "nothing was refused");
  const std::string piece(10007, 'x');
  while (Value(WriteText(*pair.connector, piece)) > 0) {
  }
  while (!Value(ReadText(*pair.acceptor, 4096)).empty()) {
  }
  const Message message;
  while (Value(pair.connector->Post(message))) {
  }
  Check(Value(pair.connector->ArmPost()), "the messages are full");
  Check(!Value(pair.connector->ArmWrite()), "the stream is not");
  Message taken;
  while (Value(pair.acceptor->Take(&taken))) {
  }
  AwaitWake(*pair.connector);
  Check(!Value(pair.connector->ArmPost()), "room again");
  Check(Value(pair.connector->Post(message)), "taken again");
}

std::shared_ptr<Region> OfferedRegion(Context& context) {
  std::shared_ptr<Region> region = Value(context.Allocate(kRegionSize));
  Check(region->size() >= kRegionSize, "as large as asked for");
  for (size_t i = 0; i < kRegionSize; ++i) region->data()[i] = Pattern(i, 7);
  context.Offer(region);
  return region;
}

void GetReadsWithinBounds(Context& context) {
  const std::shared_ptr<Region> region = OfferedRegion(context);
  Pair pair = Attach(context);
  context.Offer(nullptr);
  const uint64_t size = pair.connector->remote_size();
  Check(size == region->size() && pair.acceptor->remote_size() == size, "both ends see it");
  std::vector<uint8_t> into(size + 1, 0xEE);
  const auto get = [&](uint64_t offset, size_t length) {
    return GetNow(*pair.connector, offset, into.data(), length);
  };
  for (const auto& [offset, length] : {std::pair<uint64_t, size_t>{0, 1},
                                       {1, 4095},
                                       {4097, 100000},
                                       {0, kRegionSize},
                                       {kRegionSize - 1, 1}}) {
    into[length] = 0xEE;
    CheckOk(get(offset, length));
    for (size_t i = 0; i < length; ++i) Check(into[i] == Pattern(offset + i, 7), "the bytes");
    Check(into[length] == 0xEE, "no byte more");
  }
  const uint64_t got = pair.connector->get_bytes();
  Check(got == 1 + 4095 + 100000 + kRegionSize + 1, "bytes are counted");
  CheckOk(get(0, 0));
  CheckOk(get(size, 0));
  for (const auto& [offset, length] : {std::pair<uint64_t, size_t>{size, 1},
                                       {size + 1, 0},
                                       {0, size + 1},
                                       {size - 1, 2},
                                       {UINT64_MAX, 1},
                                       {UINT64_MAX, 0},
                                       {1, SIZE_MAX},
                                       {UINT64_MAX - 1, SIZE_MAX}}) {
    CheckCode(get(offset, length), StatusCode::kInvalidArgument);
  }
  Check(pair.connector->get_bytes() == got, "what failed is not counted");
  region->data()[5] = 99;
  CheckOk(get(5, 1));
  Check(into[0] == 99, "the owner's writes show");
  CheckOk(GetNow(*pair.acceptor, 5, into.data(), 1));
}

void GetByManyThreads(Context& context) {
  const std::shared_ptr<Region> region = OfferedRegion(context);
  Pair pair = Attach(context);
  context.Offer(nullptr);
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&pair, id] {
      std::vector<uint8_t> into(60000);
      std::mt19937 random(id);
      for (int i = 0; i < 200 / kSlowdown; ++i) {
        const uint64_t offset = random() % (kRegionSize - into.size());
        CheckOk(GetNow(*pair.acceptor, offset, into.data(), into.size()));
        for (size_t at = 0; at < into.size(); ++at) {
          Check(into[at] == Pattern(offset + at, 7), "the bytes");
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void NothingOfferedNothingRead(Context& context) {
  context.Offer(nullptr);
  Pair pair = Attach(context);
  Check(pair.connector->remote_size() == 0 && pair.acceptor->remote_size() == 0, "no region");
  uint8_t byte;
  CheckCode(GetNow(*pair.connector, 0, &byte, 1), StatusCode::kInvalidArgument);
}

void RegionOutlivesItsOwnersHandle(Context& context) {
  std::shared_ptr<Region> region = OfferedRegion(context);
  Pair pair = Attach(context);
  context.Offer(nullptr);
  region.reset();
  uint8_t byte;
  CheckOk(GetNow(*pair.connector, 1000, &byte, 1));
  Check(byte == Pattern(1000, 7), "a peer that mapped it keeps it");
}

void DiscardedPagesReadAsZeros(Context& context) {
  const std::shared_ptr<Region> region = OfferedRegion(context);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  Pair pair = Attach(context);
  context.Offer(nullptr);
  CheckOk(region->Discard(page, 2 * page));
  std::vector<uint8_t> into(4 * page);
  CheckOk(GetNow(*pair.connector, 0, into.data(), into.size()));
  for (size_t i = 0; i < into.size(); ++i) {
    const bool zero = i >= page && i < 3 * page;
    Check(into[i] == (zero ? 0 : Pattern(i, 7)) && region->data()[i] == into[i], "zeros or kept");
  }
  region->data()[page] = 3;
  CheckOk(GetNow(*pair.connector, page, into.data(), 1));
  Check(into[0] == 3, "the pages can be used again");
  CheckCode(region->Discard(0, region->size() + page), StatusCode::kInvalidArgument);
  CheckCode(region->Discard(region->size(), page), StatusCode::kInvalidArgument);
  CheckCode(region->Discard(SIZE_MAX - page + 1, page), StatusCode::kInvalidArgument);
}

void AllocateRefusesNonsense(Context& context) {
  CheckCode(context.Allocate(0).status(), StatusCode::kInvalidArgument);
  Check(!context.Allocate(SIZE_MAX).ok(), "more than there is");
  Check(!context.Allocate(SIZE_MAX / 2 - 4096).ok(), "more than there is");
}

void CheckClosed(Connection& connection, const std::string& by) {
  uint8_t byte;
  Message message;
  const iovec part = {&byte, 1};
  Check(connection.closed(), "closed");
  CheckCode(connection.Write(&part, 1).status(), StatusCode::kUnavailable, by);
  CheckCode(connection.Read(&byte, 1).status(), StatusCode::kUnavailable, by);
  CheckCode(connection.Readable().status(), StatusCode::kUnavailable, by);
  CheckCode(connection.Post(message).status(), StatusCode::kUnavailable, by);
  CheckCode(connection.Take(&message).status(), StatusCode::kUnavailable, by);
  CheckCode(connection.ArmRead().status(), StatusCode::kUnavailable, by);
  CheckCode(connection.ArmWrite().status(), StatusCode::kUnavailable, by);
  CheckCode(connection.ArmPost().status(), StatusCode::kUnavailable, by);
  CheckCode(GetNow(connection, 0, &byte, 1), StatusCode::kUnavailable, by);
}

void CloseWakesAndEndsBothEnds(Context& context) {
  const std::shared_ptr<Region> region = OfferedRegion(context);
  for (const bool connector_closes : {true, false}) {
    Pair pair = Attach(context);
    if (!connector_closes) std::swap(pair.connector, pair.acceptor);
    Check(!pair.connector->closed() && !pair.acceptor->closed(), "open");
    Check(Value(pair.acceptor->ArmRead()), "sleeps");
    pair.connector->Close();
    pair.connector->Close();
    AwaitWake(*pair.acceptor);
    CheckClosed(*pair.acceptor, "closed by the peer");
    CheckClosed(*pair.connector, "closed by this end");
    pair.acceptor->Close();
  }
  context.Offer(nullptr);
}

void WhatWasWrittenIsReadAfterClose(Context& context) {
  Pair pair = Attach(context);
  Message message;
  message.bytes.fill(9);
  Check(Value(WriteText(*pair.connector, "last words")) == 10, "written");
  Check(Value(pair.connector->Post(message)), "posted");
  pair.connector->Close();
  Check(!Value(pair.acceptor->ArmRead()), "there is something");
  Check(Value(pair.acceptor->Readable()) == 10, "all of it");
  Check(Value(ReadText(*pair.acceptor, 5)) == "last ", "the first half");
  Check(Value(ReadText(*pair.acceptor, 100)) == "words", "the other half");
  CheckCode(ReadText(*pair.acceptor, 1).status(), StatusCode::kUnavailable);
  Check(!Value(pair.acceptor->ArmRead()), "there is a message");
  Message taken;
  Check(Value(pair.acceptor->Take(&taken)) && taken.bytes == message.bytes, "the message");
  CheckClosed(*pair.acceptor, "closed by the peer");
}

void CloseWakesAWriterThatWaits(Context& context) {
  Pair pair = Attach(context);
  while (Value(WriteText(*pair.connector, std::string(50000, 'x'))) > 0) {
  }
  Check(Value(pair.connector->ArmWrite()), "full");
  pair.acceptor->Close();
  AwaitWake(*pair.connector);
  CheckCode(WriteText(*pair.connector, "x").status(), StatusCode::kUnavailable);
}

void DestroyWhileThePeerSleeps(Context& context) {
  Pair pair = Attach(context);
  Check(Value(pair.connector->ArmRead()), "sleeps");
  std::thread sleeper([&] { AwaitWake(*pair.connector); });
  pair.acceptor.reset();
  sleeper.join();
  CheckClosed(*pair.connector, "closed by the peer");
}

void CloseAmidTraffic(Context& context) {
  for (int round = 0; round < 100 / kSlowdown; ++round) {
    Pair pair = Attach(context);
    std::atomic<bool> first_read{false};
    std::thread writer([&] {
      while (WriteText(*pair.connector, std::string(777, 'x')).ok()) {
      }
    });
    std::thread reader([&] {
      while (ReadText(*pair.acceptor, 1000).ok()) first_read = true;
    });
    while (!first_read) std::this_thread::yield();
    std::thread closer([&] { (round % 2 ? pair.connector : pair.acceptor)->Close(); });
    (round % 3 ? pair.connector : pair.acceptor)->Close();
    for (std::thread* thread : {&writer, &reader, &closer}) thread->join();
  }
}

void TwoConnectionsDoNotMix(Context& context) {
  const std::unique_ptr<Listener> listener = Value(context.Listen());
  Pair one = Attach(context, *listener);
  Pair two = Attach(context, *listener);
  const uint64_t total = (uint64_t{8} << 20) / kSlowdown;
  std::vector<std::thread> threads;
  threads.emplace_back([&] { Exchange(*one.connector, total, 1, 2); });
  threads.emplace_back([&] { Exchange(*one.acceptor, total, 2, 1); });
  threads.emplace_back([&] { Exchange(*two.connector, total, 3, 4); });
  threads.emplace_back([&] { Exchange(*two.acceptor, total, 4, 3); });
  for (std::thread& thread : threads) thread.join();
  one.connector->Close();
  Check(Value(WriteText(*two.connector, "alive")) == 5, "the other lives on");
}

void ListenerMayGoBeforeItsConnections(Context& context) {
  std::unique_ptr<Listener> listener = Value(context.Listen());
  const std::string address = listener->address();
  Pair pair = Attach(context, *listener);
  listener.reset();
  Check(Value(WriteText(*pair.connector, "alive")) == 5, "written");
  Check(Value(ReadText(*pair.acceptor, 5)) == "alive", "read");
  Check(!ConnectStatus(context, address, NewToken()).ok(), "nobody listens any more");
}

void OnlyAnExpectedTokenAttachesOnce(Context& context) {
  const std::unique_ptr<Listener> listener = Value(context.Listen());
  const Token token = NewToken();
  Awaited accepted;
  listener->Expect(token, accepted.done());
  CheckCode(ConnectStatus(context, listener->address(), NewToken()), StatusCode::kPermissionDenied,
            "unknown token");
  Check(!accepted.Ready(0), "an impostor does not use up the token");
  CheckOk(ConnectStatus(context, listener->address(), token));
  CheckOk(accepted.Get().status());
  CheckCode(ConnectStatus(context, listener->address(), token), StatusCode::kPermissionDenied);
}

void AForgottenTokenIsRefused(Context& context) {
  const std::unique_ptr<Listener> listener = Value(context.Listen());
  const Token token = NewToken();
  listener->Expect(token, [](MaybeConnection) { Check(false, "called after Forget"); });
  listener->Forget(token);
  CheckCode(ConnectStatus(context, listener->address(), token), StatusCode::kPermissionDenied);
  listener->Forget(token);
}

void ForgetWaitsForItsCallback(Context& context) {
  const std::unique_ptr<Listener> listener = Value(context.Listen());
  for (int round = 0; round < 200 / kSlowdown; ++round) {
    const Token token = NewToken();
    std::atomic<bool> forgotten{false};
    listener->Expect(token, [&forgotten](MaybeConnection) {
      std::this_thread::yield();
      Check(!forgotten, "called after Forget");
    });
    Awaited connected;
    CheckOk(context.Connect(listener->address(), token, kTimeoutMs, connected.done()));
    for (int spin = round * 50; spin > 0; --spin)
      std::atomic_signal_fence(std::memory_order_seq_cst);
    listener->Forget(token);
    forgotten = true;
    static_cast<void>(connected.Get().ok());
  }
}

void ACallbackMayDestroyItsListener(Context& context) {
  std::unique_ptr<Listener> listener = Value(context.Listen());
  const Token token = NewToken();
  std::promise<void> destroyed;
  listener->Expect(token, [&](MaybeConnection connection) {
    CheckOk(connection.status());
    listener.reset();
    destroyed.set_value();
  });
  CheckOk(ConnectStatus(context, listener->address(), token));
  destroyed.get_future().wait();
}

void ConnectGivesUp(Context& context) {
  Check(!ConnectStatus(context, "", NewToken(), 100).ok(), "no address");
  Check(!ConnectStatus(context, "nonsense", NewToken(), 100).ok(), "no address");
}

std::vector<Case> Suite(Context& context) {
  std::vector<Case> cases;
  const auto add = [&](const char* name, void (*test)(Context&)) {
    cases.push_back({name, [test, &context] { test(context); }});
  };
  add("streams keep order both ways", StreamsKeepOrderBothWays);
  add("a full stream takes nothing until drained", FullStreamTakesNothingUntilDrained);
  add("arming is refused when there is something", ArmingIsRefusedWhenThereIsSomething);
  add("no wake-up is lost", NoWakeUpIsLost);
  add("no writer is forgotten", NoWriterIsForgotten);
  add("messages full and empty", MessagesFullAndEmpty);
  add("armed for messages while the stream has room", ArmedForMessagesWhileTheStreamHasRoom);
  add("get reads within bounds", GetReadsWithinBounds);
  add("get by many threads", GetByManyThreads);
  add("nothing offered, nothing read", NothingOfferedNothingRead);
  add("a region outlives its owner's handle", RegionOutlivesItsOwnersHandle);
  add("discarded pages read as zeros", DiscardedPagesReadAsZeros);
  add("allocate refuses nonsense", AllocateRefusesNonsense);
  add("close wakes and ends both ends", CloseWakesAndEndsBothEnds);
  add("what was written is read after close", WhatWasWrittenIsReadAfterClose);
  add("close wakes a writer that waits", CloseWakesAWriterThatWaits);
  add("destroy while the peer sleeps", DestroyWhileThePeerSleeps);
  add("close amid traffic", CloseAmidTraffic);
  add("two connections do not mix", TwoConnectionsDoNotMix);
  add("a listener may go before its connections", ListenerMayGoBeforeItsConnections);
  add("only an expected token attaches, once", OnlyAnExpectedTokenAttachesOnce);
  add("a forgotten token is refused", AForgottenTokenIsRefused);
  add("forget waits for its callback", ForgetWaitsForItsCallback);
  add("a callback may destroy its listener", ACallbackMayDestroyItsListener);
  add("connect gives up", ConnectGivesUp);
  return cases;
}

}  // namespace
}  // namespace ar_grpc::fabric::testing

int main() {
  for (ar_grpc::fabric::Context* context :
       {&ar_grpc::fabric::loopback::Get(), &ar_grpc::fabric::shm::Get()}) {
    ar_grpc::fabric::testing::CheckOk(context->Available());
    ar_grpc::fabric::testing::RunAll(context->name(), ar_grpc::fabric::testing::Suite(*context));
  }
  return 0;
}
