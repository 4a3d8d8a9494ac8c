// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The end of connections: who hears of it, and what is not touched any more after it.

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/conformance/suite.h"

namespace ar_grpc::fabric::testing {
namespace {

// `by` is in what a connection with a stream says.
void CheckClosed(Connection& connection, const std::string& by = "") {
  const bool stream = connection.capabilities().stream;
  uint8_t byte;
  Message message;
  const iovec part = {&byte, 1};
  Check(connection.closed(), "closed");
  for (const Status& status :
       {connection.Write(&part, 1).status(), connection.Read(&byte, 1).status(),
        connection.Readable().status(), connection.Post(message).status(),
        connection.Take(&message).status(), connection.ArmRead().status(),
        connection.ArmWrite().status(), connection.ArmPost().status()}) {
    CheckCode(status, stream ? StatusCode::kUnavailable : StatusCode::kUnimplemented,
              stream ? by : "");
  }
  for (const Status& status :
       {connection.Export(nullptr).status(), GetNow(connection, "", 0, &byte, 1)}) {
    CheckCode(status, StatusCode::kUnavailable, stream ? by : "");
  }
}

void CloseEndsBothEnds(const Subject& subject) {
  const Shared shared = Share(*subject.context);
  for (const bool connector_closes : {true, false}) {
    Pair pair = Attach(subject);
    if (!connector_closes) std::swap(pair.connector, pair.acceptor);
    const Key key = Value(pair.connector->Export(shared.registration));
    Check(!pair.connector->closed() && !pair.acceptor->closed(), "open");
    if (HasStream(subject)) Check(Value(pair.acceptor->ArmRead()), "sleeps");
    pair.connector->Close(nullptr);
    Ended closed;
    pair.connector->Close([done = closed.done()] { done(Status()); });
    if (HasStream(subject)) {
      AwaitWake(*pair.acceptor);
      Eventually("the peer hears of it", [&] { return pair.acceptor->closed(); });
    }
    CheckOk(closed.Wait());
    uint8_t byte;
    CheckCode(GetNow(*pair.acceptor, key, 0, &byte, 1), StatusCode::kUnavailable);
    CheckClosed(*pair.acceptor, "peer");
    CheckClosed(*pair.connector, "this end");
    pair.acceptor->Close(nullptr);
  }
}

void WhatWasWrittenIsReadAfterClose(const Subject& subject) {
  Pair pair = Attach(subject);
  Connection& end = *pair.acceptor;
  Message message;
  message.bytes.fill(9);
  Check(Value(WriteText(*pair.connector, "last words")) == 10, "written");
  Check(Value(pair.connector->Post(message)), "posted");
  pair.connector->Close(nullptr);
  Eventually("all of it", [&] { return Value(end.Readable()) == 10; });
  Check(!Value(end.ArmRead()), "there is something");
  Check(Value(ReadText(end, 5)) == "last ", "the first half");
  Check(Value(ReadText(end, 100)) == "words", "the other half");
  Eventually("the end", [&] { return end.closed(); });
  CheckCode(ReadText(end, 1).status(), StatusCode::kUnavailable);
  Check(!Value(end.ArmRead()), "there is a message");
  Message taken;
  Check(Value(end.Take(&taken)) && taken.bytes == message.bytes, "the message");
  CheckClosed(end);
}

void CloseWakesAWriterThatWaits(const Subject& subject) {
  Pair pair = Attach(subject);
  while (Value(WriteText(*pair.connector, std::string(50000, 'x'))) > 0) {
  }
  Check(Value(pair.connector->ArmWrite()), "full");
  pair.acceptor->Close(nullptr);
  AwaitWake(*pair.connector);
  Eventually("the peer hears of it", [&] { return pair.connector->closed(); });
  CheckCode(WriteText(*pair.connector, "x").status(), StatusCode::kUnavailable);
}

void DestroyWhileThePeerSleeps(const Subject& subject) {
  Pair pair = Attach(subject);
  Check(Value(pair.connector->ArmRead()), "sleeps");
  std::thread sleeper([&] { AwaitWake(*pair.connector); });
  pair.acceptor.reset();
  sleeper.join();
  Eventually("the peer hears of it", [&] { return pair.connector->closed(); });
  CheckClosed(*pair.connector, "peer");
}

void CloseAmidTraffic(const Subject& subject) {
  for (int round = 0; round < 100 / kSlowdown; ++round) {
    Pair pair = Attach(subject);
    std::atomic<bool> first_read{false};
    std::thread writer([&] {
      while (WriteText(*pair.connector, std::string(777, 'x')).ok()) {
      }
    });
    std::thread reader([&] {
      while (ReadText(*pair.acceptor, 1000).ok()) first_read = true;
    });
    while (!first_read) std::this_thread::yield();
    std::thread closer([&] { (round % 2 ? pair.connector : pair.acceptor)->Close(nullptr); });
    (round % 3 ? pair.connector : pair.acceptor)->Close(nullptr);
    for (std::thread* thread : {&writer, &reader, &closer}) thread->join();
  }
}

// The memory of operations, as its owner uses it again once the connection is closed.
struct Targets {
  static constexpr size_t kCount = 32;
  static constexpr size_t kBytes = 50000;
  std::vector<uint8_t> bytes = std::vector<uint8_t>(kCount * kBytes, 0);
  uint8_t* at(size_t i) { return bytes.data() + i * kBytes; }
};

// Starts Gets of all targets; counts those that end.
void StartGets(Connection& connection, const Key& key, Targets& targets,
               const std::shared_ptr<std::atomic<size_t>>& ended) {
  for (size_t i = 0; i < Targets::kCount; ++i) {
    connection.Get(key, i * Targets::kBytes, targets.at(i), Targets::kBytes, nullptr,
                   [ended](Status status) {
                     if (!status.ok()) CheckCode(status, StatusCode::kUnavailable);
                     ++*ended;
                   });
  }
}

// After Close's done nothing writes to a target, and all operations have ended.
void CloseIsAFence(const Subject& subject) {
  const Shared shared = Share(*subject.context);
  for (int round = 0; round < 40 / kSlowdown + 1; ++round) {
    Pair pair = Attach(subject);
    const Key key = Value(pair.acceptor->Export(shared.registration));
    Targets targets;
    const auto ended = std::make_shared<std::atomic<size_t>>(0);
    const size_t threads = 2;
    std::vector<std::thread> getters;
    std::atomic<bool> started{false};
    Targets others;
    getters.emplace_back([&] {
      started = true;
      StartGets(*pair.connector, key, others, ended);
    });
    StartGets(*pair.connector, key, targets, ended);
    while (!started) std::this_thread::yield();
    Ended closed;
    const bool own = round % 2 == 0;
    // By the peer the getter hears of it; its own Close then is the fence.
    if (!own) pair.acceptor->Close(nullptr);
    getters[0].join();
    pair.connector->Close([done = closed.done(), ended] {
      Check(*ended == threads * Targets::kCount, "all operations have ended");
      done(Status());
    });
    CheckOk(closed.Wait());
    for (Targets* const both : {&targets, &others}) {
      std::memset(both->bytes.data(), 0xC3, both->bytes.size());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (Targets* const both : {&targets, &others}) {
      for (const uint8_t byte : both->bytes) Check(byte == 0xC3, "nobody writes after the fence");
    }
  }
}

// Of a case whose rounds wait until the peer knows of a close.
int Rounds(const Subject& subject, int most) {
  return HasStream(subject) ? most / kSlowdown + 2 : 3;
}

// Gets that other threads are amid are waited for, too, where their calls do the copy.
void CloseWaitsForTheGetsOfOtherThreads(const Subject& subject) {
  const Shared shared = Share(*subject.context);
  for (int round = 0; round < Rounds(subject, 20); ++round) {
    Pair pair = Attach(subject);
    const Key key = Value(pair.acceptor->Export(shared.registration));
    std::vector<uint8_t> targets[2];
    std::atomic<int> read{0};
    std::vector<std::thread> readers;
    for (std::vector<uint8_t>& target : targets) {
      target.resize(kSegmentSize);
      readers.emplace_back([&] {
        while (GetNow(*pair.connector, key, 0, target.data(), target.size()).ok()) ++read;
      });
    }
    while (read < 3) std::this_thread::yield();
    Ended closed;
    pair.connector->Close([done = closed.done()] { done(Status()); });
    CheckOk(closed.Wait());
    for (std::vector<uint8_t>& target : targets) std::memset(target.data(), 0xC3, target.size());
    for (std::thread& reader : readers) reader.join();
    for (const std::vector<uint8_t>& target : targets) {
      for (const uint8_t byte : target) Check(byte == 0xC3, "nobody writes after the fence");
    }
  }
}

// What the peer puts into this process's memory ends with this end's Close, too.
void CloseIsAFenceForThePeersPuts(const Subject& subject) {
  for (int round = 0; round < Rounds(subject, 20); ++round) {
    const Shared shared = Share(*subject.context, Access::kWrite);
    Pair pair = Attach(subject);
    const Key key = Value(pair.acceptor->Export(shared.registration));
    const std::vector<uint8_t> from(100000, 0x77);
    std::atomic<bool> ending{false};
    std::atomic<bool> put{false};
    std::thread putter([&] {
      while (!ending) {
        static_cast<void>(PutNow(*pair.connector, key, 1000, from.data(), from.size()).ok());
        put = true;
      }
    });
    while (!put) std::this_thread::yield();
    // Whoever of two closes first, each one's `done` is a fence.
    std::thread other([&] { pair.acceptor->Close(nullptr); });
    Ended closed;
    pair.acceptor->Close([done = closed.done()] { done(Status()); });
    CheckOk(closed.Wait());
    std::memset(shared.segment->data(), 0xC3, kSegmentSize);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    for (size_t i = 0; i < kSegmentSize; ++i) {
      Check(shared.segment->data()[i] == 0xC3, "nobody puts after the fence");
    }
    ending = true;
    other.join();
    putter.join();
  }
}

void EveryCloseIsAnswered(const Subject& subject) {
  Pair pair = Attach(subject);
  std::vector<std::thread> threads;
  std::atomic<int> answered{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      Ended ended;
      pair.connector->Close([&answered, done = ended.done()] {
        ++answered;
        done(Status());
      });
      CheckOk(ended.Wait());
    });
  }
  for (std::thread& thread : threads) thread.join();
  Check(answered == 4, "each of them once");
  Ended late;
  pair.acceptor->Close([done = late.done()] { done(Status()); });
  CheckOk(late.Wait());
}

void AConnectionMayGoWithGetsOutstanding(const Subject& subject) {
  const Shared shared = Share(*subject.context);
  for (const bool own : {true, false}) {
    Pair pair = Attach(subject);
    const Key key = Value(pair.acceptor->Export(shared.registration));
    const auto targets = std::make_shared<Targets>();
    const auto ended = std::make_shared<std::atomic<size_t>>(0);
    StartGets(*pair.connector, key, *targets, ended);
    (own ? pair.connector : pair.acceptor).reset();
    Eventually("all of them end", [&] { return *ended == Targets::kCount; });
  }
}

// A read that ended well was over before the close: its bytes are the owner's.
void WhatAGetReadBeforeTheCloseIsGood(const Subject& subject) {
  for (int round = 0; round < Rounds(subject, 40); ++round) {
    const Shared shared = Share(*subject.context);
    Pair pair = Attach(subject);
    const Key key = Value(pair.acceptor->Export(shared.registration));
    std::atomic<bool> reads{false};
    std::thread reader([&] {
      std::vector<uint8_t> into(300000);
      while (true) {
        const Status status = GetNow(*pair.connector, key, 0, into.data(), into.size());
        if (!status.ok() && pair.connector->closed()) break;
        reads = true;
        if (!status.ok()) continue;
        for (size_t i = 0; i < into.size(); ++i) Check(into[i] == Pattern(i, 7), "the bytes");
      }
    });
    while (!reads) std::this_thread::yield();
    Ended closed;
    pair.acceptor->Close([done = closed.done()] { done(Status()); });
    CheckOk(closed.Wait());
    // Another use of the memory.
    std::memset(shared.segment->data(), 0, kSegmentSize);
    reader.join();
  }
}

void TheEndOfAGetMayEndTheConnection(const Subject& subject) {
  const Shared shared = Share(*subject.context);
  Pair pair = Attach(subject);
  const Key key = Value(pair.acceptor->Export(shared.registration));
  uint8_t byte = 0;
  Ended ended;
  Ended closed;
  Connection& connection = *pair.connector;
  connection.Get(key, 0, &byte, 1, nullptr, [&](Status) {
    connection.Close([done = closed.done()] { done(Status()); });
    pair.connector.reset();
    ended.done()(Status());
  });
  CheckOk(ended.Wait());
  CheckOk(closed.Wait());
}

}  // namespace

std::vector<Case> CloseCases(const Subject& subject) {
  const bool stream = HasStream(subject);
  const bool put = subject.context->capabilities().put;
  return CasesOf(
      subject,
      {
          {"close ends both ends", CloseEndsBothEnds},
          {"what was written is read after close", WhatWasWrittenIsReadAfterClose, stream},
          {"close wakes a writer that waits", CloseWakesAWriterThatWaits, stream},
          {"destroy while the peer sleeps", DestroyWhileThePeerSleeps, stream},
          {"close amid traffic", CloseAmidTraffic, stream},
          {"close is a fence", CloseIsAFence},
          {"close waits for the gets of other threads", CloseWaitsForTheGetsOfOtherThreads,
           subject.context->capabilities().inline_get},
          {"close is a fence for the peer's puts", CloseIsAFenceForThePeersPuts, put},
          {"every close is answered", EveryCloseIsAnswered},
          {"a connection may go with gets outstanding", AConnectionMayGoWithGetsOutstanding},
          {"what a get read before the close is good", WhatAGetReadBeforeTheCloseIsGood},
          {"the end of a get may end the connection", TheEndOfAGetMayEndTheConnection},
      });
}

}  // namespace ar_grpc::fabric::testing
