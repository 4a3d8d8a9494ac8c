// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Both ends of verbs in one process: RDMA operations from a device to itself.

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/common/at_rest.h"
#include "tests/verbs/own_pair.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr size_t kLargest = 64 << 20;
// Longer than a closed queue pair takes to be destroyed, with a peer or without one.
constexpr std::chrono::seconds kAtRest(3);

void CheckBytes(const uint8_t* bytes, uint64_t offset, size_t size) {
  for (size_t i = 0; i < size; ++i) {
    if (bytes[i] != ByteAt(offset + i)) {
      Check(false, "wrong byte at " + std::to_string(i) + " of " + std::to_string(size));
    }
  }
}

// The third byte of its brochure says so.
bool OverIwarp() { return Value(Get().Brochure())[2] == 3; }

void SaysWhoIsReached() {
  CheckCode(Get().Available(), StatusCode::kOk);
  const std::string brochure = Value(Get().Brochure());
  Check(brochure.size() <= kLargestBrochure, "the brochure is too long");
  CheckCode(Get().Reaches(brochure), StatusCode::kOk);
  for (size_t size = 0; size < brochure.size(); ++size) {
    CheckCode(Get().Reaches(brochure.substr(0, size)), StatusCode::kInvalidArgument);
  }
  CheckCode(Get().Reaches(brochure + "x"), StatusCode::kInvalidArgument);
  // version, kind, link layer, LID, partition key, count, and then family and GID of each
  constexpr size_t kCount = 7;
  constexpr size_t kName = kCount + 1;
  std::string infiniband = brochure;
  infiniband[2] = 1;
  infiniband[3] = 1;
  infiniband[kName] = 0;
  infiniband.resize(kName + 17);
  infiniband[kCount] = 1;
  CheckCode(Get().Reaches(infiniband), StatusCode::kUnavailable, "the peer's on InfiniBand");
  std::string other_partition = brochure;
  other_partition[5] = 1;
  CheckCode(Get().Reaches(other_partition), StatusCode::kUnavailable,
            "different partitions: here 0xffff, at the peer 0xff01");
  std::string other_family = brochure.substr(0, kName + 17);
  other_family[kCount] = 1;
  CheckCode(Get().Reaches(other_family), StatusCode::kOk);
  other_family[kName + 1 + 12] = static_cast<char>(0xe0);
  CheckCode(Get().Reaches(other_family), StatusCode::kInvalidArgument);  // a multicast address
  other_family[kName] = 2;
  CheckCode(Get().Reaches(other_family), StatusCode::kInvalidArgument);  // IPv4 called IPv6
  other_family[kName + 1] = 0x20;
  const Status status = Get().Reaches(other_family);
  Check(status.ok() || status.message().find("no IP family ") != std::string::npos,
        status.message());
  std::string other_transport = brochure.substr(0, kName + 17);
  other_transport[kCount] = 1;
  CheckCode(Get().Reaches(other_transport), StatusCode::kOk);
  other_transport[2] = OverIwarp() ? 2 : 3;
  CheckCode(Get().Reaches(other_transport), StatusCode::kUnavailable, "iWARP");
}

void ReadsAllSizes() {
  const Pair pair = Connected();
  const Memory memory(kLargest);
  const Key key = Value(pair.owner->Export(memory.registration));
  Check(key.size() <= kLargestKey, "the key is too long");
  Check(key == Value(pair.owner->Export(memory.registration)), "another key of the same memory");
  // A target that is registered, and one that is not.
  const Memory registered(kLargest);
  std::vector<uint8_t> heap(kLargest);
  uint64_t bytes = 0;
  for (uint8_t* const into : {registered.segment->data(), heap.data()}) {
    for (const size_t size :
         {size_t{1}, size_t{2}, size_t{63}, size_t{1023}, size_t{1025}, size_t{4097}, size_t{65536},
          size_t{1000003}, size_t{8 << 20} + 1, size_t{32 << 20}, kLargest}) {
      const uint64_t offset = std::min<uint64_t>(kLargest - size, 12345);
      std::memset(into, 0, std::min(size + 1, kLargest));
      CheckCode(GetNow(*pair.reader, key, offset, into, size), StatusCode::kOk);
      CheckBytes(into, offset, size);
      if (size < kLargest) Check(into[size] == 0, "a byte more than was asked for");
      bytes += size;
    }
  }
  Check(pair.reader->get_bytes() == bytes,
        "get_bytes: " + std::to_string(pair.reader->get_bytes()));
  CheckCode(GetNow(*pair.reader, key, kLargest, heap.data(), 0), StatusCode::kOk);
}

void BothEndsRead() {
  const Pair pair = Connected();
  const Memory memory(1 << 20);
  const Key key = Value(pair.reader->Export(memory.registration));
  std::vector<uint8_t> into(1 << 20);
  CheckCode(GetNow(*pair.owner, key, 0, into.data(), into.size()), StatusCode::kOk);
  CheckBytes(into.data(), 0, into.size());
}

void Writes() {
  const Pair pair = Connected();
  const Memory memory(20 << 20, Access::kWrite);
  const Key key = Value(pair.owner->Export(memory.registration));
  std::vector<uint8_t> from(20 << 20);
  for (size_t i = 0; i < from.size(); ++i) from[i] = ByteAt(i + 7);
  Awaited<Status> put;
  pair.reader->Put(key, 0, from.data(), from.size(), nullptr, [&put](Status s) { put.Set(s); });
  CheckCode(put.Get(), StatusCode::kOk);
  CheckBytes(memory.segment->data(), 7, from.size());
}

// More at once than the queue pair takes.
void ManyFromTwoThreads() {
  const Pair pair = Connected();
  constexpr size_t kPiece = 1000;
  constexpr size_t kPieces = 1500;
  const Memory memory(kPiece * kPieces);
  const Memory into(2 * kPiece * kPieces);
  const Key key = Value(pair.owner->Export(memory.registration));
  std::atomic<size_t> ended{0};
  Awaited<bool> all;
  std::vector<std::thread> threads;
  for (size_t number = 0; number < 2; ++number) {
    threads.emplace_back([&, number] {
      for (size_t i = 0; i < kPieces; ++i) {
        uint8_t* const target = into.segment->data() + (number * kPieces + i) * kPiece;
        pair.reader->Get(key, i * kPiece, target, kPiece, nullptr, [&](Status status) {
          CheckCode(status, StatusCode::kOk);
          if (++ended == 2 * kPieces) all.Set(true);
        });
        if (i % 64 == 0) pair.reader->Progress();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  all.Get();
  for (size_t number = 0; number < 2; ++number) {
    CheckBytes(into.segment->data() + number * kPiece * kPieces, 0, kPiece * kPieces);
  }
}

void RefusesWithoutTheWire() {
  const Pair pair = Connected();
  const Memory memory(1 << 16);
  const Key key = Value(pair.owner->Export(memory.registration));
  uint8_t into[64] = {};  // Valgrind does not see what a device writes
  const auto invalid = StatusCode::kInvalidArgument;
  for (size_t size = 0; size < key.size(); ++size) {
    CheckCode(GetNow(*pair.reader, key.substr(0, size), 0, into, 1), invalid);
  }
  CheckCode(GetNow(*pair.reader, key + "x", 0, into, 1), invalid);
  for (size_t bit = 0; bit < key.size() * 8; ++bit) {
    Key flipped = key;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    CheckCode(GetNow(*pair.reader, flipped, 0, into, 1), invalid, "peer did not give");
  }
  // Nor over another connection, nor at the end that gave it.
  const Pair other = Connected();
  CheckCode(GetNow(*other.reader, key, 0, into, 1), invalid, "peer did not give");
  CheckCode(GetNow(*pair.owner, key, 0, into, 1), invalid, "peer did not give");
  CheckCode(GetNow(*pair.reader, key, (1 << 16) - 1, into, 2), invalid, "range");
  CheckCode(GetNow(*pair.reader, key, UINT64_MAX, into, 2), invalid, "range");
  CheckCode(GetNow(*pair.reader, key, 1, into, SIZE_MAX), invalid, "range");
  Awaited<Status> put;
  pair.reader->Put(key, 0, into, 1, nullptr, [&put](Status status) { put.Set(status); });
  CheckCode(put.Get(), invalid, "for writing");
  CheckCode(pair.reader->Map(key, 0, 1).status(), StatusCode::kUnimplemented);
  CheckCode(pair.reader->Export(nullptr).status(), invalid);
  CheckCode(Get().Register(memory.segment, 1 << 16, 1, Access::kRead).status(), invalid);
  CheckCode(Get().Register(memory.segment, 1, UINT64_MAX, Access::kRead).status(), invalid);
  CheckCode(GetNow(*pair.reader, key, 0, into, sizeof(into)), StatusCode::kOk);
  CheckBytes(into, 0, sizeof(into));
}

// The device of the peer refuses, and the connection is broken for both.
void AccessToWhatHasEnded() {
  const Pair pair = Connected();
  Memory memory(1 << 16);
  const Memory target(1 << 16);
  const Key key = Value(pair.owner->Export(memory.registration));
  memory.registration.reset();
  Awaited<Status> second;
  Awaited<Status> first;
  pair.reader->Get(key, 0, target.segment->data(), 1 << 16, nullptr,
                   [&first](Status status) { first.Set(status); });
  pair.reader->Get(key, 0, target.segment->data(), 1 << 16, nullptr,
                   [&second](Status status) { second.Set(status); });
  if (OverIwarp()) {
    // Soft-iWARP ends the connection, and does not say why.
    CheckCode(first.Get(), StatusCode::kUnavailable, "or it has refused an access");
    CheckCode(second.Get(), StatusCode::kUnavailable, "or it has refused an access");
  } else {
    CheckCode(first.Get(), StatusCode::kInvalidArgument, "refused the access");
    CheckCode(second.Get(), StatusCode::kUnavailable, "remote access error");
  }
  Check(pair.reader->closed(), "an end whose queue pair has failed is not closed");
  CheckCode(GetNow(*pair.reader, key, 0, target.segment->data(), 1), StatusCode::kUnavailable);
  CheckCode(pair.reader->Export(target.registration).status(), StatusCode::kUnavailable);
  CloseNow(*pair.reader);
  CloseNow(*pair.owner);
}

void CloseWhileReading(bool by_destruction) {
  for (int round = 0; round < 10; ++round) {
    Pair pair = Connected();
    const Memory memory(16 << 20);
    const Key key = Value(pair.owner->Export(memory.registration));
    constexpr int kReads = 8;
    auto into = std::make_shared<std::vector<uint8_t>>(16 << 20);
    std::atomic<int> ended{0};
    std::atomic<int> good{0};
    Awaited<bool> all;
    for (int i = 0; i < kReads; ++i) {
      pair.reader->Get(key, 0, into->data() + (i << 20), 1 << 20, into, [&](Status status) {
        if (status.ok()) ++good;
        if (!status.ok()) CheckCode(status, StatusCode::kUnavailable, "closed");
        if (++ended == kReads) all.Set(true);
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(round));
    if (by_destruction) {
      pair.reader.reset();
      all.Get();
    } else {
      Awaited<int> closed;
      pair.reader->Close([&] { closed.Set(ended.load()); });
      Check(pair.reader->closed(), "not closed after Close");
      Check(closed.Get() == kReads, "closed before all reads had ended");
      all.Get();
      CheckCode(GetNow(*pair.reader, key, 0, into->data(), 1), StatusCode::kUnavailable, "closed");
      CloseNow(*pair.reader);
    }
    // `keep` goes right after the last end.
    const auto begin = std::chrono::steady_clock::now();
    while (into.use_count() > 1) {
      Check(std::chrono::steady_clock::now() - begin < kPatience, "the target is still held");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

// Until what it returns is set, the reactor runs nothing.
std::shared_ptr<Awaited<bool>> HoldTheReactor() {
  Awaited<bool> held;
  const auto over = std::make_shared<Awaited<bool>>();
  CheckCode(StartOnReactor([&held, over] {
              held.Set(true);
              over->Get();
            }),
            StatusCode::kOk);
  held.Get();
  return over;
}

// Reads with Progress alone, since the reactor is held up until the read has ended: `done` runs in
// this thread.
void ReadByProgress(Connection* reader, const Key& key, std::vector<uint8_t>* into, Done done) {
  const std::shared_ptr<Awaited<bool>> over = HoldTheReactor();
  const auto ended = std::make_shared<std::atomic<bool>>(false);
  reader->Get(key, 0, into->data(), into->size(), nullptr, [ended, over, done](Status status) {
    *ended = true;
    over->Set(true);
    done(std::move(status));
  });
  while (!*ended) reader->Progress();
}

// The end of a read may still run when the device has given up all: who closes is told after that,
// since then the memory goes.
void ClosesAfterTheLastEnd() {
  const Pair pair = Connected();
  const Memory memory(1 << 16);
  const Key key = Value(pair.owner->Export(memory.registration));
  Awaited<bool> begun;
  Awaited<bool> closed;
  std::atomic<bool> ended{false};
  std::vector<uint8_t> into(1 << 16);
  std::thread reads([&] {
    ReadByProgress(pair.reader.get(), key, &into, [&](Status status) {
      CheckCode(status, StatusCode::kOk);
      begun.Set(true);
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
      ended = true;
    });
  });
  begun.Get();
  pair.reader->Close([&] { closed.Set(ended); });
  Check(closed.Get(), "closed before the read's end had returned");
  reads.join();
}

// The connection may go in the end of its own read, while the reactor gives up the device's part.
void DestroyedByItsOwnEnd() {
  Pair pair = Connected();
  const Memory memory(1 << 16);
  const Key key = Value(pair.owner->Export(memory.registration));
  std::vector<uint8_t> into(1 << 16);
  ReadByProgress(pair.reader.get(), key, &into, [&](Status status) {
    CheckCode(status, StatusCode::kOk);
    pair.reader.reset();
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  });
  CheckBytes(into.data(), 0, into.size());
}

void PeerGone() {
  Pair pair = Connected();
  const Memory memory(1 << 16);
  const Key key = Value(pair.owner->Export(memory.registration));
  const auto begin = std::chrono::steady_clock::now();
  CloseNow(*pair.owner);
  while (!pair.reader->closed()) {
    Check(std::chrono::steady_clock::now() - begin < kPatience, "the end does not hear of it");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CheckCode(GetNow(*pair.reader, key, 0, memory.segment->data(), 1), StatusCode::kUnavailable,
            "closed by the peer");
}

void ClosesFromMany() {
  for (int round = 0; round < 20; ++round) {
    const Pair pair = Connected();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&pair, i] { CloseNow(i % 2 == 0 ? *pair.reader : *pair.owner); });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

void HostileFrames() {
  End server;
  std::unique_ptr<Attachment> accept = Value(Get().Accept(server.events()));
  const std::string hello = *server.NextFrame();
  Check(hello.size() <= kLargestAttachFrame, "the frame is too long");
  accept.reset();
  Check(!server.made(), "an end that was given up was made");
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::string frame = hello;
    if (round < static_cast<int>(hello.size())) {
      frame.resize(round);
    } else {
      // Numbers out of range, and bytes that nobody wrote.
      for (int i = 0; i < 3; ++i) frame[random() % frame.size()] = static_cast<char>(random());
    }
    End client;
    const auto connect = Value(Get().Connect(client.events()));
    connect->TakeFrame(frame);
    if (!client.NextFrame().has_value()) continue;  // refused
    // Well formed after all: what follows is not what was to come.
    connect->TakeFrame("not the last word");
    CheckCode(client.Take().status(), StatusCode::kInvalidArgument);
  }
  End client;
  const auto connect = Value(Get().Connect(client.events()));
  // Nobody listens there any more, of which a client over iWARP hears by the reactor.
  const std::shared_ptr<Awaited<bool>> over = HoldTheReactor();
  connect->TakeFrame(hello);
  connect->TakeFrame(hello);  // while it connects
  over->Set(true);
  CheckCode(client.Take().status(), StatusCode::kInvalidArgument, "order");
}

void LeavesNothing() {
  Connected();
  const size_t before = ar_grpc::testing::AtRest(Descriptors, kAtRest);
  for (int i = 0; i < 100; ++i) {
    const Pair pair = Connected();
    End given_up;
    Value(Get().Accept(given_up.events()));
  }
  // The reactor gives them up, once the peer knows.
  const auto begin = std::chrono::steady_clock::now();
  while (Descriptors() != before) {
    Check(std::chrono::steady_clock::now() - begin < kPatience, "descriptors are left");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Forks() {
  Pair pair = Connected();
  Memory memory(1 << 20);
  const Key key = Value(pair.owner->Export(memory.registration));
  std::vector<uint8_t> into(1 << 20);
  const pid_t child = fork();
  if (child == 0) {
    CheckCode(GetNow(*pair.reader, key, 0, into.data(), 1), StatusCode::kUnavailable, "child");
    CheckCode(pair.reader->Export(memory.registration).status(), StatusCode::kUnavailable);
    CloseNow(*pair.reader);
    pair.reader.reset();
    pair.owner.reset();
    memory.registration.reset();
    // A child has a device of its own.
    BothEndsRead();
    std::_Exit(0);
  }
  int status = -1;
  Check(waitpid(child, &status, 0) == child && status == 0, "the child failed");
  CheckCode(GetNow(*pair.reader, key, 0, into.data(), into.size()), StatusCode::kOk);
  CheckBytes(into.data(), 0, into.size());
}

// Last: it lowers a limit.
void LockedMemoryIsLimited() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  Check(syscall(SYS_capget, &header, data) == 0, "capget");
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  Check(syscall(SYS_capset, &header, data) == 0, "capset");
  const rlimit limit = {1 << 20, 1 << 20};
  Check(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");
  const auto segment = Value(memory::Segment::Create(4 << 20));
  CheckCode(Get().Register(segment, 0, 4 << 20, Access::kRead).status(),
            StatusCode::kResourceExhausted, "limited to 1024 KiB: raise `ulimit -l`");
}

// What the command line names, or all.
std::string only;

void Run(const char* name, const std::function<void()>& one) {
  if (!only.empty() && only != name) return;
  const auto begin = std::chrono::steady_clock::now();
  one();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("ok verbs: %s (%.2f s)\n", name, took.count());
  std::fflush(stdout);
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  if (argc > 1) only = argv[1];
  Run("says who is reached", SaysWhoIsReached);
  Run("reads all sizes", ReadsAllSizes);
  Run("both ends read", BothEndsRead);
  Run("writes", Writes);
  Run("many from two threads", ManyFromTwoThreads);
  Run("refuses without the wire", RefusesWithoutTheWire);
  Run("a registration that has ended", AccessToWhatHasEnded);
  Run("close while reading", [] { CloseWhileReading(false); });
  Run("destroyed while reading", [] { CloseWhileReading(true); });
  Run("closes after the last end", ClosesAfterTheLastEnd);
  Run("destroyed by its own end", DestroyedByItsOwnEnd);
  Run("the peer has gone", PeerGone);
  Run("closed from many threads", ClosesFromMany);
  Run("hostile frames", HostileFrames);
  Run("leaves nothing", LeavesNothing);
  Run("forks", Forks);
  Run("locked memory is limited", LockedMemoryIsLimited);
}
