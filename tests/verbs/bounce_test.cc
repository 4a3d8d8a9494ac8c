// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// READs whose target is not registered, and WRITEs whose source is not, between two ends in one
// process:
//   bounce_test            how the bytes go, and what is registered for them
//   bounce_test limited    as an ordinary user who may lock little memory
//   bounce_test none       as one who may lock too little for any connection

#include <grp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/verbs/own_pair.h"
#include "tests/verbs/queue_counts.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/verbs/bounce_pool.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr size_t kPiece = BouncePool::kPieceBytes;
constexpr uint8_t kFill = 0xee;

void CheckBytes(const std::vector<uint8_t>& into, uint64_t offset, size_t size) {
  for (size_t i = 0; i < size; ++i) Check(into[i] == ByteAt(offset + i), "a wrong byte");
  Check(std::count(into.begin() + static_cast<ptrdiff_t>(size), into.end(), kFill) ==
            static_cast<ptrdiff_t>(into.size() - size),
        "a byte more than was asked for");
}

void Await(const char* what, const std::function<bool()>& held) {
  const auto begin = std::chrono::steady_clock::now();
  while (!held()) {
    Check(std::chrono::steady_clock::now() - begin < kPatience, what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The first one's target is registered, and so are the pieces; from then on nothing is.
void SmallOnesGoByPieces() {
  const Pair pair = Connected();
  const Memory memory(1 << 20);
  const Key key = Value(pair.owner->Export(memory.registration));
  const uint64_t before = QueueCounts::registrations;
  std::vector<uint8_t> into(kPiece + 1, kFill);
  CheckCode(GetNow(*pair.reader, key, 5, into.data(), 100), StatusCode::kOk);
  CheckBytes(into, 5, 100);
  Await("the pieces are registered", [&] { return QueueCounts::registrations == before + 2; });
  uint64_t bytes = 100;
  const auto goes_by_a_piece = [&] {
    const uint64_t then = QueueCounts::registrations;
    CheckCode(GetNow(*pair.reader, key, 5, into.data(), 100), StatusCode::kOk);
    bytes += 100;
    return QueueCounts::registrations == then;
  };
  // Some time after they are registered.
  Await("the pieces can be had", goes_by_a_piece);
  const uint64_t settled = QueueCounts::registrations;
  for (const size_t size : {size_t{1}, size_t{63}, size_t{4096}, size_t{100001}, kPiece}) {
    for (int round = 0; round < 20; ++round) {
      std::fill(into.begin(), into.end(), kFill);
      CheckCode(GetNow(*pair.reader, key, 77, into.data(), size), StatusCode::kOk);
      CheckBytes(into, 77, size);
      bytes += size;
    }
  }
  Check(QueueCounts::registrations == settled, "a small target was registered");
  Check(pair.reader->get_bytes() == bytes, "bytes are counted");
  // What is larger than a piece is registered.
  std::fill(into.begin(), into.end(), kFill);
  CheckCode(GetNow(*pair.reader, key, 1, into.data(), kPiece + 1), StatusCode::kOk);
  CheckBytes(into, 1, kPiece + 1);
  Check(QueueCounts::registrations == settled + 1, "a large target was not registered");
}

// Where no piece is free a target is registered, as before.
void MoreThanThereArePieces() {
  const Pair pair = Connected();
  const Memory memory(1 << 20);
  const Key key = Value(pair.owner->Export(memory.registration));
  constexpr size_t kReads = 5 * BouncePool::kPieces;
  std::vector<std::vector<uint8_t>> into(kReads, std::vector<uint8_t>(50001, kFill));
  std::atomic<size_t> ended{0};
  for (int round = 0; round < 5; ++round) {
    ended = 0;
    for (size_t i = 0; i < kReads; ++i) {
      std::fill(into[i].begin(), into[i].end(), kFill);
      pair.reader->Get(key, i, into[i].data(), 50000, nullptr, [&ended](const Status& status) {
        CheckCode(status, StatusCode::kOk);
        ++ended;
      });
    }
    Await("all of them end", [&] { return ended == kReads; });
    for (size_t i = 0; i < kReads; ++i) CheckBytes(into[i], i, 50000);
  }
}

// A target that cannot be registered is read by way of pieces, once there are some.
void LargeOnesThatAreRefused() {
  const Pair pair = Connected();
  const Memory memory(8 << 20);
  const Key key = Value(pair.owner->Export(memory.registration));
  std::vector<uint8_t> into((5 << 20) + 2, kFill);
  QueueCounts::refused_above = 1000;
  CheckCode(GetNow(*pair.reader, key, 0, into.data(), 5 << 20), StatusCode::kResourceExhausted,
            "raise `ulimit -l`");
  QueueCounts::refused_above = BouncePool::kPieces * kPiece;
  // That was refused, too, and is tried again after a while.
  Await("it is read by way of pieces",
        [&] { return GetNow(*pair.reader, key, 3, into.data(), (5 << 20) + 1).ok(); });
  CheckBytes(into, 3, (5 << 20) + 1);
  const uint64_t before = QueueCounts::registrations;
  std::vector<std::vector<uint8_t>> targets(6, into);
  std::atomic<size_t> good{0};
  std::atomic<size_t> ended{0};
  for (size_t i = 0; i < targets.size(); ++i) {
    std::fill(targets[i].begin(), targets[i].end(), kFill);
    pair.reader->Get(key, i, targets[i].data(), 5 << 20, nullptr, [&](const Status& status) {
      if (!status.ok()) CheckCode(status, StatusCode::kResourceExhausted, "ulimit -l");
      good += status.ok() ? 1 : 0;
      ++ended;
    });
  }
  Await("all of them end", [&] { return ended == targets.size(); });
  Check(good >= 2, "those that found pieces");
  CheckBytes(targets[0], 0, 5 << 20);
  CheckBytes(targets[1], 1, 5 << 20);
  Check(QueueCounts::registrations == before, "a target was registered");
  // The next ones find all pieces free again.
  CheckCode(GetNow(*pair.reader, key, 0, into.data(), 5 << 20), StatusCode::kOk);
  QueueCounts::refused_above = SIZE_MAX;
}

// The same for what is written, small and refused.
void Writes() {
  const Pair pair = Connected();
  const Memory memory(8 << 20, Access::kWrite);
  const Key key = Value(pair.owner->Export(memory.registration));
  std::vector<uint8_t> from((5 << 20) + 1);
  for (size_t i = 0; i < from.size(); ++i) from[i] = ByteAt(i + 9);
  const uint8_t* const written = memory.segment->data();
  const auto check = [&](uint64_t offset, size_t size) {
    CheckCode(PutNow(*pair.reader, key, offset, from.data(), size), StatusCode::kOk);
    Check(std::equal(from.begin(), from.begin() + static_cast<ptrdiff_t>(size), written + offset),
          "wrong bytes");
    Check(written[offset + size] == ByteAt(offset + size), "a byte more");
    for (size_t i = 0; i < size; ++i) memory.segment->data()[offset + i] = ByteAt(offset + i);
  };
  // Refused before there are any pieces: it waits for them.
  QueueCounts::refused_above = BouncePool::kPieces * kPiece;
  check(3, from.size());
  // More at once than there are pieces.
  constexpr size_t kWrites = 3 * BouncePool::kPieces;
  std::atomic<size_t> good{0};
  for (size_t i = 0; i < kWrites; ++i) {
    pair.reader->Put(key, i << 10, from.data() + (i << 10), 2 << 20, nullptr, [&](const auto& end) {
      CheckCode(end, StatusCode::kOk);
      ++good;
    });
  }
  Await("all of them end well", [&] { return good == kWrites; });
  Check(std::equal(from.begin(), from.begin() + (2 << 20), written), "wrong bytes");
  for (size_t i = 0; i < from.size(); ++i) memory.segment->data()[i] = ByteAt(i);
  QueueCounts::refused_above = SIZE_MAX;
  const uint64_t before = QueueCounts::registrations;
  for (const size_t size : {size_t{1}, size_t{4096}, size_t{100001}, kPiece}) {
    for (int round = 0; round < 20; ++round) check(77, size);
  }
  Check(QueueCounts::registrations == before, "a small source was registered");
  check(1, kPiece + 1);
  Check(QueueCounts::registrations == before + 1, "a large source was not registered");
}

// Nothing is written to the target once Close has said so.
void ClosedOnTheWay() {
  for (int round = 0; round < 8; ++round) {
    const Pair pair = Connected();
    const Memory memory(8 << 20);
    const Key key = Value(pair.owner->Export(memory.registration));
    std::vector<uint8_t> into(8 << 20, kFill);
    // Two ends, what is offered, and the pieces.
    Await("the pieces can be had", [&] {
      const uint64_t then = QueueCounts::registrations;
      CheckCode(GetNow(*pair.reader, key, 0, into.data(), 10), StatusCode::kOk);
      return QueueCounts::registrations == then && QueueCounts::regions == 4;
    });
    QueueCounts::refused_above = 1 << 20;
    std::atomic<int> ended{0};
    Status last;
    for (int i = 0; i < 2; ++i) {
      pair.reader->Get(key, 0, into.data(), into.size(), nullptr, [&](Status status) {
        last = std::move(status);
        ++ended;
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
    CloseNow(*pair.reader);
    QueueCounts::refused_above = SIZE_MAX;
    Check(ended == 2, "closed before the reads had ended");
    if (!last.ok() && last.code() != StatusCode::kResourceExhausted) {
      CheckCode(last, StatusCode::kUnavailable, "closed by this end");
    }
    std::fill(into.begin(), into.end(), kFill);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    Check(std::count(into.begin(), into.end(), kFill) == static_cast<ptrdiff_t>(into.size()),
          "a byte came after the close");
    CloseNow(*pair.owner);
  }
}

void NothingIsLeft() {
  Await("no region is left", [] { return QueueCounts::regions == 0; });
}

// Root may lock what it likes.
void BecomeAnOrdinaryUser(size_t locked) {
  const rlimit limit = {locked, locked};
  Check(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
  Check(!MemoryLockIsLimited(), "root's capability lifts the limit");
  Check(setgroups(0, nullptr) == 0 && setgid(65534) == 0 && setuid(65534) == 0, "setuid");
  Check(MemoryLockIsLimited(), "an ordinary user's is not limited");
}

// A first connection's buffers do not fit: verbs is not used, and who asked is told the cure.
void TooLittleForAConnection() {
  BecomeAnOrdinaryUser(64 << 10);
  End server;
  CheckCode(Get().Accept(server.events()).status(), StatusCode::kResourceExhausted,
            "locked memory is limited to 64 KiB: raise `ulimit -l`");
}

// Two ends and the pieces fit, and neither the ends' other buffers nor a target.
void LittleForTwoEnds() {
  constexpr size_t kOffered = 300 << 10;
  BecomeAnOrdinaryUser(2 * kFirstBytes + kOffered + BouncePool::kPieces * kPiece + (64 << 10));
  const Pair pair = Connected();
  const Memory memory(kOffered);
  const Key key = Value(pair.owner->Export(memory.registration));
  const auto large = Value(memory::Segment::Create(4 << 20));
  CheckCode(Get().Register(large, 0, 4 << 20, Access::kRead).status(),
            StatusCode::kResourceExhausted, "KiB: raise `ulimit -l`");
  std::vector<uint8_t> into(kOffered + 1, kFill);
  // The pieces first: what a large READ registers meanwhile might leave too little for them.
  Await("a small one goes by way of the pieces", [&] {
    const uint64_t then = QueueCounts::registrations;
    CheckCode(GetNow(*pair.reader, key, 0, into.data(), 50), StatusCode::kOk);
    return QueueCounts::registrations == then && QueueCounts::regions == 4;
  });
  // A READ does not wait for the pieces, which can be had only some time after they are registered.
  Await("the pieces can be had",
        [&] { return GetNow(*pair.reader, key, 0, into.data(), kOffered).ok(); });
  CheckBytes(into, 0, kOffered);
  // The stream, more of it than a first window, both ways.
  constexpr size_t kBytes = 3 << 20;
  size_t written = 0;
  size_t read = 0;
  Await("all of the stream came", [&] {
    std::vector<uint8_t> bytes(30000);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = ByteAt(written + i);
    const iovec part = {bytes.data(), std::min(bytes.size(), kBytes - written)};
    written += Value(pair.reader->Write(&part, 1));
    for (;;) {
      const size_t got = Value(pair.owner->Read(bytes.data(), bytes.size()));
      for (size_t i = 0; i < got; ++i) Check(bytes[i] == ByteAt(read + i), "the stream's bytes");
      read += got;
      if (got == 0) return read == kBytes;
    }
  });
  Check(QueueCounts::regions == 4, "buffers were added");
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  QueueCounts::Watch();
  if (argc == 2 && std::strcmp(argv[1], "limited") == 0) {
    LittleForTwoEnds();
  } else if (argc == 2 && std::strcmp(argv[1], "none") == 0) {
    TooLittleForAConnection();
  } else {
    SmallOnesGoByPieces();
    NothingIsLeft();
    MoreThanThereArePieces();
    NothingIsLeft();
    LargeOnesThatAreRefused();
    NothingIsLeft();
    Writes();
    NothingIsLeft();
    ClosedOnTheWay();
    NothingIsLeft();
  }
  std::puts("ok bounce");
}
