// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/mpi/scenarios.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <utility>

namespace ar_grpc::mpi::testing {
namespace {

constexpr int kTags = 1000;
constexpr uint8_t kReleased = 0xDB;

void Sizes(Rank& rank) {
  const int other = 1 - rank.rank();
  const uint64_t limit = 64 << 10;
  std::vector<size_t> sizes = {0, 1, 7, 4096, 1 << 20};
  for (const uint64_t chunks : {1, 2, 5}) {
    for (const int more : {-1, 0, 1}) sizes.push_back(chunks * limit + more);
  }
  for (const size_t size : sizes) {
    if (rank.rank() == 0) {
      rank.Give(other, size, size);
      rank.Take(other, size, size + 1);
    } else {
      rank.Take(other, size, size);
      rank.Give(other, size, size + 1);
    }
  }
}

// Whatever MPI makes of large ones: 64 MiB in one message and one of more, and a full one.
void LargeSizes(Rank& rank) {
  for (const size_t size : {(64u << 20) - 1, 64u << 20, (64u << 20) + 12345}) {
    if (rank.rank() == 0) {
      rank.Give(1, size, size);
    } else {
      rank.Take(0, size, size);
    }
  }
}

// All ranks to all others, all at once, as large as it comes.
void Crowd(Rank& rank) {
  constexpr int kEach = 60;
  struct One {
    std::unique_ptr<Memory> memory;
    Tag tag;
    Ended ended;
    uint64_t seed;
  };
  std::vector<One> sends;
  std::vector<One> receives;
  std::mt19937_64 order(rank.rank());
  const auto size_of = [](uint64_t seed) {
    std::mt19937_64 random(seed);
    return static_cast<size_t>(std::exp2(std::uniform_real_distribution<>(0, 20)(random)));
  };
  for (int other = 0; other < rank.size(); ++other) {
    if (other == rank.rank()) continue;
    for (int i = 0; i < kEach; ++i) {
      const uint64_t out = (rank.rank() * 100 + other) * 1000 + i;
      const uint64_t in = (other * 100 + rank.rank()) * 1000 + i;
      receives.push_back({std::make_unique<Memory>(size_of(in)), rank.NextReceive(other), {}, in});
      One send{std::make_unique<Memory>(size_of(out)), {}, {}, out};
      send.memory->Fill(out);
      rank.channel().Send(other, rank.NextSend(other), send.memory->data(), send.memory->size(),
                          nullptr, send.ended.done());
      sends.push_back(std::move(send));
    }
  }
  std::shuffle(receives.begin(), receives.end(), order);
  for (One& one : receives) {
    rank.channel().Receive(one.tag, one.memory->data(), one.memory->size(), nullptr,
                           one.ended.done());
  }
  for (One& one : receives) {
    CheckOk(one.ended.Wait());
    one.memory->CheckFilled(one.seed);
  }
  for (One& one : sends) CheckOk(one.ended.Wait());
}

// Nothing has come: its memory is back at once. What comes later is nobody's, and its sender does
// not wait for ever.
void CancelBefore(Rank& rank) {
  if (rank.rank() == 0) {
    Memory memory(100000);
    Ended ended;
    {
      Tag tag = rank.NextReceive(1);
      const Id id =
          rank.channel().Receive(tag, memory.data(), memory.size(), memory.keep(), ended.done());
      rank.channel().Cancel(id);
      CheckCode(ended.Wait(), StatusCode::kCancelled, "the MPI transfer was cancelled");
      Eventually("the memory is given back", [&] { return memory.released(); });
      // A second receive under the same tag gets what is sent.
      Memory again(100000);
      Ended second;
      rank.channel().Receive(tag, again.data(), again.size(), nullptr, second.done());
      rank.Tell(1);
      CheckOk(second.Wait());
      again.CheckFilled(7);
    }
    memory.CheckUntouched();
    const uint64_t strays = rank.channel().counts().strays;
    Ended third;
    {
      Tag tag = rank.NextReceive(1);
      const Id id =
          rank.channel().Receive(tag, memory.data(), memory.size(), nullptr, third.done());
      rank.channel().Cancel(id);
      CheckCode(third.Wait(), StatusCode::kCancelled);
    }
    memory.Fill(3);
    rank.Tell(1);
    Eventually("what nobody wants is received",
               [&] { return rank.channel().counts().strays > strays; });
    memory.CheckFilled(3);
  } else {
    Memory memory(100000);
    memory.Fill(7);
    for (int i = 0; i < 2; ++i) {
      rank.Hear(0);
      Ended ended;
      rank.channel().Send(0, rank.NextSend(0), memory.data(), memory.size(), nullptr, ended.done());
      CheckOk(ended.Wait());
    }
  }
  rank.Meet();
}

// Some chunks have come: memory is given back when MPI has ended the one that it has.
void CancelMidway(Rank& rank) {
  constexpr int kRounds = 20;
  int cancelled = 0;
  for (int i = 0; i < kRounds; ++i) {
    Memory memory(8 << 20);
    if (rank.rank() == 0) {
      Ended ended;
      {
        Tag tag = rank.NextReceive(1);
        const Id id =
            rank.channel().Receive(tag, memory.data(), memory.size(), memory.keep(), ended.done());
        rank.Tell(1);
        std::this_thread::sleep_for(std::chrono::microseconds(300 * i));
        rank.channel().Cancel(id);
        const Status status = ended.Wait();
        if (status.ok()) {
          memory.CheckUntouched();  // only looks at it when it was released
        } else {
          CheckCode(status, StatusCode::kCancelled);
          ++cancelled;
        }
      }
      Eventually("the memory is given back", [&] { return memory.released(); });
      rank.Hear(1);  // it has sent all
      memory.CheckUntouched();
    } else {
      memory.Fill(i);
      rank.Hear(0);
      Ended ended;
      rank.channel().Send(0, rank.NextSend(0), memory.data(), memory.size(), nullptr, ended.done());
      CheckOk(ended.Wait());
      rank.Tell(0);
    }
  }
  Check(rank.channel().counts().kept == 0 && rank.channel().counts().kept_bytes == 0, "kept");
  Check(rank.rank() != 0 || cancelled > 0, "each transfer ended before its cancel");
}

// The peer has more or fewer bytes than expected: that transfer fails, at the receiver, and no
// other.
void WrongSizes(Rank& rank) {
  const size_t limit = 64 << 10;
  const std::vector<std::pair<size_t, size_t>> sizes = {
      {10, 20},           {20, 10},          {0, 1}, {1, 0}, {limit, limit - 1}, {3 * limit, limit},
      {limit, 3 * limit}, {2 * limit, limit}};
  for (const auto& [sent, expected] : sizes) {
    Ended ended;
    Memory memory(std::max(sent, expected));
    memory.Fill(1);
    if (rank.rank() == 0) {
      {
        Tag tag = rank.NextReceive(1);
        rank.channel().Receive(tag, memory.data(), expected, nullptr, ended.done());
        rank.Tell(1);
        CheckCode(ended.Wait(), StatusCode::kInvalidArgument, " were to come, of ");
      }
      rank.Take(1, 1000, 5);
    } else {
      rank.Hear(0);
      rank.channel().Send(0, rank.NextSend(0), memory.data(), sent, nullptr, ended.done());
      rank.Give(0, 1000, 5);
      CheckOk(ended.Wait());
    }
  }
  rank.Meet();
}

void Refusals(Rank& rank) {
  Channel& channel = rank.channel();
  uint8_t byte = 0;
  const auto sent = [&](int to, int tag) {
    Ended ended;
    channel.Send(to, tag, &byte, 1, nullptr, ended.done());
    return ended.Wait();
  };
  CheckCode(sent(2, 0), StatusCode::kInvalidArgument, "the MPI job has no rank 2, but 2 ranks");
  CheckCode(sent(-1, 0), StatusCode::kInvalidArgument, "the MPI job has no rank -1, but 2 ranks");
  CheckCode(sent(0, -1), StatusCode::kInvalidArgument, "MPI has no tag -1 here, only up to ");
  const int largest = channel.job().largest_tag;
  Check(largest >= 32767, "less than the standard's");
  if (largest < std::numeric_limits<int>::max()) {
    CheckCode(sent(0, largest + 1), StatusCode::kInvalidArgument,
              "MPI has no tag " + std::to_string(largest + 1) + " here, only up to " +
                  std::to_string(largest));
  }
  Ended none;
  channel.Receive(Tag(), &byte, 1, nullptr, none.done());
  CheckCode(none.Wait(), StatusCode::kInvalidArgument, "the tag is none of this MPI channel's");
  CheckCode(channel.Draw(2).status(), StatusCode::kInvalidArgument, "the MPI job has no rank 2");
  if (rank.rank() == 0) {
    Ended first;
    Ended second;
    Tag tag = rank.NextReceive(1);
    channel.Receive(tag, &byte, 1, nullptr, first.done());
    channel.Receive(tag, &byte, 1, nullptr, second.done());
    CheckCode(second.Wait(), StatusCode::kInvalidArgument,
              "the tag " + std::to_string(tag.value()) + " is in use with rank 1");
    rank.Tell(1);
    CheckOk(first.Wait());
    Check(byte == 9, "the first one's byte");
  } else {
    rank.Hear(0);
    byte = 9;
    CheckOk(sent(0, rank.NextSend(0)));
  }
  rank.Meet();
}

// A message to oneself, and one that comes before its receive.
void EarlyAndOwn(Rank& rank) {
  Memory out(200000);
  out.Fill(4);
  Ended sent;
  const int other = 1 - rank.rank();
  rank.channel().Send(other, rank.NextSend(other), out.data(), out.size(), nullptr, sent.done());
  Tag tag = rank.NextReceive(other);
  // By now the other's message has come, and waits.
  rank.Meet();
  Memory in(200000);
  Ended received;
  rank.channel().Receive(tag, in.data(), in.size(), nullptr, received.done());
  CheckOk(received.Wait());
  CheckOk(sent.Wait());
  in.CheckFilled(4);
  Ended own_sent;
  Ended own_received;
  Memory own(200000);
  Tag own_tag = rank.NextReceive(rank.rank());
  rank.channel().Receive(own_tag, own.data(), own.size(), nullptr, own_received.done());
  rank.channel().Send(rank.rank(), rank.NextSend(rank.rank()), out.data(), out.size(), nullptr,
                      own_sent.done());
  CheckOk(own_received.Wait());
  CheckOk(own_sent.Wait());
  own.CheckFilled(4);
  rank.Meet();
}

}  // namespace

void Memory::Fill(uint64_t seed) {
  for (size_t i = 0; i < size(); ++i) data()[i] = Pattern(i, seed);
}

void Memory::CheckFilled(uint64_t seed, int line) const {
  for (size_t i = 0; i < size(); ++i) {
    if ((*bytes_)[i] != Pattern(i, seed)) Check(false, "byte " + std::to_string(i), line);
  }
}

Keep Memory::keep() {
  return Keep(bytes_->data(), [bytes = bytes_, released = released_](const void*) {
    std::fill(bytes->begin(), bytes->end(), kReleased);
    *released = true;
  });
}

void Memory::CheckUntouched(int line) const {
  if (!released()) return;
  for (size_t i = 0; i < size(); ++i) {
    if ((*bytes_)[i] != kReleased) Check(false, "written at " + std::to_string(i), line);
  }
}

Rank::Rank(Channel& channel) : channel_(channel) {
  for (int from = 0; from < size(); ++from) {
    for (int i = 0; i < kTags; ++i) tags_[from].push_back(Value(channel_.Draw(from)));
  }
}

Tag Rank::NextReceive(int from) {
  Check(!tags_[from].empty(), "more tags than are drawn");
  Tag tag = std::move(tags_[from].front());
  tags_[from].pop_front();
  return tag;
}

void Rank::Give(int to, size_t size, uint64_t seed) {
  Memory memory(size);
  memory.Fill(seed);
  Ended ended;
  channel_.Send(to, NextSend(to), memory.data(), size, memory.keep(), ended.done());
  CheckOk(ended.Wait());
  Eventually("a send's memory is given back", [&] { return memory.released(); });
}

void Rank::Take(int from, size_t size, uint64_t seed) {
  Memory memory(size);
  Ended ended;
  Tag tag = NextReceive(from);
  channel_.Receive(tag, memory.data(), size, nullptr, ended.done());
  CheckOk(ended.Wait());
  memory.CheckFilled(seed);
}

void Rank::Tell(int to) { Give(to, 1, 77); }

void Rank::Hear(int from) { Take(from, 1, 77); }

void Rank::Meet() {
  for (int other = 1; other < size(); ++other) {
    if (rank() == 0) {
      Hear(other);
    } else if (rank() == other) {
      Tell(0);
    }
  }
  for (int other = 1; other < size(); ++other) {
    if (rank() == 0) {
      Tell(other);
    } else if (rank() == other) {
      Hear(0);
    }
  }
}

const std::vector<Scenario>& Scenarios() {
  static const auto* const all = new std::vector<Scenario>{
      {"sizes", 2, 64 << 10, Sizes},
      {"large-sizes", 2, kChunkBytes, LargeSizes},
      {"crowd", 3, 64 << 10, Crowd},
      {"cancel-before", 2, kChunkBytes, CancelBefore},
      {"cancel-midway", 2, 64 << 10, CancelMidway},
      {"wrong-sizes", 2, 64 << 10, WrongSizes},
      {"refusals", 2, kChunkBytes, Refusals},
      {"early-and-own", 2, kChunkBytes, EarlyAndOwn},
  };
  return *all;
}

}  // namespace ar_grpc::mpi::testing
