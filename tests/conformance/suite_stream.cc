// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The stream and the messages.

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "tests/conformance/suite.h"

namespace ar_grpc::fabric::testing {

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

namespace {

void StreamsKeepOrderBothWays(const Subject& subject) {
  const uint64_t total = (uint64_t{64} << 20) / kSlowdown;
  Pair pair = Attach(subject);
  std::thread other([&] { Exchange(*pair.acceptor, total, 1, 2); });
  Exchange(*pair.connector, total, 2, 1);
  other.join();
  for (const auto* end : {&pair.connector, &pair.acceptor}) {
    Check((*end)->stream_bytes_sent() == total, "bytes sent are counted");
    Check((*end)->stream_bytes_received() == total, "bytes received are counted");
  }
}

void FullStreamTakesNothingUntilDrained(const Subject& subject) {
  Pair pair = Attach(subject);
  const std::string piece(10007, 'x');
  size_t written = 0;
  while (const size_t wrote = Value(WriteText(*pair.connector, piece))) written += wrote;
  Check(written > piece.size(), "a stream holds something");
  Eventually("all of it is there to be read",
             [&] { return Value(pair.acceptor->Readable()) == written; });
  Check(Value(pair.connector->ArmWrite()), "a full stream is worth sleeping for");
  if (subject.exact_wakes) {
    Check(!Readable(pair.connector->wake_fd(), 20), "not woken while it is full");
  }
  Check(Value(WriteText(*pair.connector, piece)) == 0, "still full");
  Check(Value(pair.connector->ArmWrite()), "armed anew");
  size_t drained = 0;
  Eventually("all of it was read", [&] {
    drained += Value(ReadText(*pair.acceptor, 4096)).size();
    return drained == written;
  });
  AwaitWake(*pair.connector);
  Eventually("room again: no reason to sleep", [&] { return !Value(pair.connector->ArmWrite()); });
  Check(Value(WriteText(*pair.connector, piece)) == piece.size(), "taken again");
  Eventually("and there", [&] { return Value(pair.acceptor->Readable()) == piece.size(); });
}

void ArmingIsRefusedWhenThereIsSomething(const Subject& subject) {
  Pair pair = Attach(subject);
  Connection& end = *pair.acceptor;
  const auto armed = [&end] { return Value(end.ArmRead()); };
  Eventually("nothing to read", armed);
  Check(Value(WriteText(*pair.connector, "a")) == 1, "written");
  AwaitWake(end);
  Eventually("a byte to read", [&] { return !armed(); });
  Check(Value(ReadText(end, 10)) == "a", "read");
  Check(Value(ReadText(end, 10)).empty(), "empty");
  Eventually("nothing to read", armed);
  Check(Value(pair.connector->Post(Message{})), "posted");
  AwaitWake(end);
  Eventually("a message to take", [&] { return !armed(); });
  Message message;
  Check(Value(end.Take(&message)), "taken");
  if (!subject.exact_wakes) return;
  Check(!Readable(end.wake_fd(), 0), "cleared");
  Check(Value(WriteText(*pair.connector, "b")) == 1, "written");
  Check(!Readable(end.wake_fd(), 20), "who has not armed is not woken");
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
        WriteAll(connection, &number, sizeof(number));
      } else if (sends) {
        std::memcpy(message.bytes.data(), &number, sizeof(number));
        while (!Value(connection.Post(message))) {
          if (Value(connection.ArmPost())) AwaitWake(connection);
        }
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

void NoWakeUpIsLost(const Subject& subject) {
  const int rounds = 100000 / kSlowdown / subject.fewer_rounds;
  Pair pair = Attach(subject);
  std::thread other([&] { PingPong(*pair.acceptor, rounds, false); });
  PingPong(*pair.connector, rounds, true);
  other.join();
}

// A writer that is always ahead: it sleeps at every full ring, for messages as for the stream.
void NoWriterIsForgotten(const Subject& subject) {
  const auto count = static_cast<uint32_t>(200000 / kSlowdown / subject.fewer_rounds);
  Pair pair = Attach(subject);
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

void MessagesFullAndEmpty(const Subject& subject) {
  Pair pair = Attach(subject);
  Message message;
  Check(!Value(pair.acceptor->Take(&message)), "none yet");
  uint8_t posted = 0;
  for (message.bytes.fill(0); posted < 255 && Value(pair.connector->Post(message));) {
    message.bytes.fill(++posted);
  }
  Check(posted >= 2, "some fit");
  while (Value(pair.connector->Post(message))) {
  }
  Check(Value(pair.connector->ArmWrite()), "full");
  Check(Value(WriteText(*pair.connector, "stream")) == 6, "the stream has room all the same");
  Check(Value(pair.connector->ArmWrite()), "the messages are full still");
  for (uint8_t i = 0; i < posted; ++i) {
    Eventually("taken", [&] { return Value(pair.acceptor->Take(&message)); });
    for (const uint8_t byte : message.bytes) Check(byte == i, "a message's bytes");
  }
  Eventually("room again", [&] {
    static_cast<void>(Value(pair.acceptor->Take(&message)));
    return Readable(pair.connector->wake_fd(), 0);
  });
  Eventually("room again", [&] { return Value(pair.connector->Post(message)); });
  std::string text;
  Eventually("and the stream is its own", [&] {
    text += Value(ReadText(*pair.acceptor, 10));
    return text == "stream";
  });
}

// A stream that was full once says nothing of the messages.
void ArmedForMessagesWhileTheStreamHasRoom(const Subject& subject) {
  Pair pair = Attach(subject);
  Check(!Value(pair.connector->ArmPost()), "nothing was refused");
  const std::string piece(10007, 'x');
  size_t written = 0;
  while (const size_t wrote = Value(WriteText(*pair.connector, piece))) written += wrote;
  Eventually("drained", [&] {
    written -= Value(ReadText(*pair.acceptor, 4096)).size();
    return written == 0;
  });
  const Message message;
  // What was drained may have brought more room, for messages, too.
  Eventually("the messages are full", [&] {
    while (Value(pair.connector->Post(message))) {
    }
    return Value(pair.connector->ArmPost());
  });
  Message taken;
  Eventually("room again", [&] {
    static_cast<void>(Value(pair.acceptor->Take(&taken)));
    return Readable(pair.connector->wake_fd(), 0);
  });
  Eventually("room again", [&] { return !Value(pair.connector->ArmPost()); });
  Check(Value(pair.connector->Post(message)), "taken again");
}

}  // namespace

std::vector<Case> StreamCases(const Subject& subject) {
  if (!HasStream(subject)) return {};
  return CasesOf(
      subject,
      {
          {"streams keep order both ways", StreamsKeepOrderBothWays},
          {"a full stream takes nothing until drained", FullStreamTakesNothingUntilDrained},
          {"arming is refused when there is something", ArmingIsRefusedWhenThereIsSomething},
          {"no wake-up is lost", NoWakeUpIsLost},
          {"no writer is forgotten", NoWriterIsForgotten},
          {"messages full and empty", MessagesFullAndEmpty},
          {"armed for messages while the stream has room", ArmedForMessagesWhileTheStreamHasRoom},
      });
}

}  // namespace ar_grpc::fabric::testing
