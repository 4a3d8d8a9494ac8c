// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What is registered with a fabric that pins pages, and when: loopback, which records it.

#include "third_party/ar_grpc/protocol/pinned_ranges.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/forwarding.h"
#include "tests/units/transfer_testing.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/memory/extent_allocator.h"

namespace {

using namespace ar_grpc;                     // NOLINT
using namespace ar_grpc::protocol;           // NOLINT
using namespace ar_grpc::protocol::testing;  // NOLINT
using memory::ExtentAllocator;
using Range = PinnablePages::Range;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kSlab = PinnedRanges::kSlab;
constexpr auto kLater = PinnedRanges::kIdle + std::chrono::seconds(1);

PinnedRanges::Clock::time_point Later() { return PinnedRanges::Clock::now() + kLater; }

// What happened to one context's registrations.
struct Record {
  std::mutex mu;
  std::condition_variable changed;
  // Guarded by mu.
  std::vector<std::pair<uint64_t, uint64_t>> live;  // offset, size; in the order of registering
  std::vector<std::thread::id> threads;
  int asked = 0;
  bool held_back = false;
  uint64_t refused_from = UINT64_MAX;  // sizes from this one on
  int refused_at = 0;                  // this call, counted from 1
  std::function<void(uint64_t offset, uint64_t size)> on_end;
  std::atomic<int> strangers{0};  // registrations that a connection does not know, from now on
  std::atomic<bool> busy{false};  // a Get of this process uses all of them
  std::atomic<int> failures{0};   // of the device: what was registered before one is of no use

  int Asked() {
    std::lock_guard<std::mutex> lock(mu);
    return asked;
  }
  std::vector<std::pair<uint64_t, uint64_t>> Live() {
    std::lock_guard<std::mutex> lock(mu);
    return live;
  }
  uint64_t Bytes() {
    uint64_t bytes = 0;
    for (const auto& [offset, size] : Live()) bytes += size;
    return bytes;
  }
  void HoldBack(bool on) {
    std::lock_guard<std::mutex> lock(mu);
    held_back = on;
    changed.notify_all();
  }
};

class Recorded final : public fabric::Registration {
 public:
  Recorded(std::shared_ptr<fabric::Registration> under, std::shared_ptr<Record> record)
      : under_(std::move(under)), record_(std::move(record)) {}
  ~Recorded() override {
    std::lock_guard<std::mutex> lock(record_->mu);
    if (record_->on_end) record_->on_end(offset(), size());
    record_->live.erase(std::find(record_->live.begin(), record_->live.end(),
                                  std::pair<uint64_t, uint64_t>(offset(), size())));
  }
  const std::shared_ptr<memory::Segment>& segment() const override { return under_->segment(); }
  uint64_t offset() const override { return under_->offset(); }
  uint64_t size() const override { return under_->size(); }
  bool Retire() override { return !record_->busy; }
  bool usable() const override { return failures_ == record_->failures; }
  const std::shared_ptr<fabric::Registration>& under() const { return under_; }

 private:
  const std::shared_ptr<fabric::Registration> under_;
  const std::shared_ptr<Record> record_;
  const int failures_ = record_->failures;
};

// Loopback knows its own registrations alone.
class PinningConnection final : public fabric::Connection {
 public:
  PinningConnection(std::unique_ptr<Connection> under, std::shared_ptr<Record> record)
      : under_(std::move(under)), record_(std::move(record)) {}
  fabric::Capabilities capabilities() const override {
    fabric::Capabilities can = under_->capabilities();
    can.pins = true;
    return can;
  }
  StatusOr<fabric::Key> Export(const std::shared_ptr<fabric::Registration>& one) override {
    if (record_->strangers-- > 0) return Status(StatusCode::kInvalidArgument, "another device's");
    record_->strangers = 0;
    return under_->Export(dynamic_cast<Recorded&>(*one).under());
  }
  StatusOr<size_t> Write(const iovec* parts, int count) override {
    return under_->Write(parts, count);
  }
  StatusOr<size_t> Read(void* into, size_t size) override { return under_->Read(into, size); }
  StatusOr<size_t> Readable() override { return under_->Readable(); }
  StatusOr<bool> Post(const fabric::Message& message) override { return under_->Post(message); }
  StatusOr<bool> Take(fabric::Message* message) override { return under_->Take(message); }
  int wake_fd() const override { return under_->wake_fd(); }
  void ClearWake() override { under_->ClearWake(); }
  StatusOr<bool> ArmRead() override { return under_->ArmRead(); }
  StatusOr<bool> ArmWrite() override { return under_->ArmWrite(); }
  StatusOr<bool> ArmPost() override { return under_->ArmPost(); }
  void Get(const fabric::Key& key, uint64_t offset, void* into, size_t size,
           std::shared_ptr<const void> keep, fabric::Done done) override {
    under_->Get(key, offset, into, size, std::move(keep), std::move(done));
  }
  void Put(const fabric::Key& key, uint64_t offset, const void* from, size_t size,
           std::shared_ptr<const void> keep, fabric::Done done) override {
    under_->Put(key, offset, from, size, std::move(keep), std::move(done));
  }
  StatusOr<fabric::Lease> Map(const fabric::Key& key, uint64_t offset, size_t size) override {
    return under_->Map(key, offset, size);
  }
  void Progress() override { under_->Progress(); }
  void Close(std::function<void()> done) override { under_->Close(std::move(done)); }
  bool closed() const override { return under_->closed(); }
  uint64_t stream_bytes_sent() const override { return under_->stream_bytes_sent(); }
  uint64_t stream_bytes_received() const override { return under_->stream_bytes_received(); }
  uint64_t get_bytes() const override { return under_->get_bytes(); }

 private:
  const std::unique_ptr<Connection> under_;
  const std::shared_ptr<Record> record_;
};

class PinningContext final : public fabric::testing::ForwardingContext {
 public:
  explicit PinningContext(std::shared_ptr<Record> record)
      : ForwardingContext(fabric::loopback::New()), record_(std::move(record)) {}

  const char* name() const override { return "pinning"; }
  fabric::Capabilities capabilities() const override {
    fabric::Capabilities can = ForwardingContext::capabilities();
    can.pins = true;
    return can;
  }
  StatusOr<std::shared_ptr<fabric::Registration>> Register(std::shared_ptr<memory::Segment> segment,
                                                           uint64_t offset, uint64_t size,
                                                           fabric::Access access) override {
    std::unique_lock<std::mutex> lock(record_->mu);
    record_->threads.push_back(std::this_thread::get_id());
    const bool refuses = ++record_->asked == record_->refused_at || size >= record_->refused_from;
    record_->changed.wait(lock, [this] { return !record_->held_back; });
    if (refuses) return Status(StatusCode::kResourceExhausted, "raise `ulimit -l`");
    auto made = ForwardingContext::Register(std::move(segment), offset, size, access);
    CheckOk(made.status());
    record_->live.emplace_back(offset, size);
    return std::shared_ptr<fabric::Registration>(std::make_shared<Recorded>(*made, record_));
  }
  StatusOr<std::unique_ptr<fabric::Attachment>> Accept(fabric::AttachEvents events) override {
    return ForwardingContext::Accept(Wrapped(std::move(events)));
  }
  StatusOr<std::unique_ptr<fabric::Attachment>> Connect(fabric::AttachEvents events) override {
    return ForwardingContext::Connect(Wrapped(std::move(events)));
  }

 private:
  fabric::AttachEvents Wrapped(fabric::AttachEvents events) {
    events.done = [record = record_, done = std::move(events.done)](
                      StatusOr<std::unique_ptr<fabric::Connection>> made) {
      if (!made.ok()) return done(made.status());
      done(std::unique_ptr<fabric::Connection>(
          std::make_unique<PinningConnection>(std::move(*made), record)));
    };
    return events;
  }

  const std::shared_ptr<Record> record_;
};

std::mutex log_mu;
std::vector<std::string> log_lines;  // guarded by log_mu

std::vector<std::string> TakeLog() {
  std::lock_guard<std::mutex> lock(log_mu);
  return std::exchange(log_lines, {});
}

// An arena, what is exported of it, and a link over which it can be read.
struct Arena {
  explicit Arena(uint64_t size = 8 * kSlab)
      : world([record = record] { return std::make_unique<PinningContext>(record); }, kMiB),
        segment(Value(memory::Segment::Create(size))),
        extents([size] {
          ExtentAllocator::Options options;
          options.size = size;
          return options;
        }()),
        exports(std::make_shared<Exports>(
            [this](const std::string&) { return world.server_context.get(); })) {
    exports->AddSegment(segment, &extents);
  }
  ~Arena() {
    if (node != nullptr) node->RemoveLink(ends.server);
    Settle();
  }

  // A node of these exports gets the link.
  void Open() {
    ends = world.Connect();
    node = Node::Create({{"test"}, exports, nullptr});
    node->AddLink(ends.server);
  }
  uint8_t* Allocate(uint64_t size) {
    bool cold = false;
    const std::optional<uint64_t> offset = extents.Allocate(size, 256, &cold);
    Check(offset.has_value(), "room");
    uint8_t* const data = segment->data() + *offset;
    if (cold) exports->Carved(data, size);
    return data;
  }
  // The queue has come to what it was given up to now, and what that brought with it.
  static void Settle() {
    for (int round = 0; round < 20; ++round) {
      std::atomic<bool> ran{false};
      PinnedRanges::Queue().Run([&ran] { ran = true; });
      Eventually("the queue runs", [&ran] { return ran.load(); });
    }
  }
  Status TryExport(const void* data, uint64_t size) {
    return exports->Export(*ends.server, data, size).status();
  }
  // Exports it for the peer, once it is registered.
  Exports::Readable Export(const void* data, uint64_t size) {
    Eventually("it is registered", [&] { return TryExport(data, size).ok(); });
    return Value(exports->Export(*ends.server, data, size));
  }
  bool Discard(uint64_t offset, uint64_t length, PinnedRanges::Clock::time_point now = Later()) {
    return Value(exports->Discard(segment, {offset, length}, now));
  }

  const std::shared_ptr<Record> record = std::make_shared<Record>();
  World world;
  const std::shared_ptr<memory::Segment> segment;
  ExtentAllocator extents;
  const std::shared_ptr<Exports> exports;
  Ends ends;
  std::shared_ptr<Node> node;
};

using Live = std::vector<std::pair<uint64_t, uint64_t>>;

void CarvedSlabsAreRegisteredOnce() {
  Arena arena;
  arena.Open();
  Arena::Settle();
  Check(arena.record->Asked() == 0, "nothing was handed out");
  arena.Allocate(kMiB);
  Arena::Settle();
  Check(arena.record->Live() == Live{{0, kSlab}}, "its slab");
  Check(arena.extents.counters().warm_free == kSlab - kMiB, "the allocator knows what was pinned");
  for (int i = 0; i < 15; ++i) arena.Allocate(kMiB);
  Arena::Settle();
  Check(arena.record->Asked() == 1, "once");
  Check(arena.extents.counters().warm_free == 0, "all of the slab is used before another");
  arena.Allocate(kMiB);
  Arena::Settle();
  Check(arena.record->Live() == Live{{0, kSlab}, {kSlab, kSlab}}, "the next slab");
  for (const std::thread::id thread : arena.record->threads) {
    Check(thread != std::this_thread::get_id(), "never in the thread that allocates");
  }
}

void LaterContextsGetWhatIsInUse() {
  Arena arena;
  arena.Allocate(20 * kMiB);
  uint8_t* const freed = arena.Allocate(20 * kMiB);
  arena.Allocate(kMiB);
  arena.extents.Free(static_cast<uint64_t>(freed - arena.segment->data()));
  Arena::Settle();
  Check(!arena.exports->pins() && arena.record->Asked() == 0, "no fabric pins yet");
  arena.Open();
  Arena::Settle();
  Check(arena.record->Live() == Live{{0, 2 * kSlab}, {2 * kSlab, kSlab}}, "what is in use");
  Check(arena.exports->pins(), "from now on");
}

// Who only asks whether memory is registered learns it, too, and it is registered anew.
void FailedDevicesAreReplaced() {
  Arena arena;
  arena.Open();
  uint8_t* const data = arena.Allocate(kMiB);
  Arena::Settle();
  Check(arena.exports->Registered(*arena.ends.server, data, kMiB), "registered");
  ++arena.record->failures;
  Check(!arena.exports->Registered(*arena.ends.server, data, kMiB), "with a device that failed");
  Arena::Settle();
  Check(arena.exports->Registered(*arena.ends.server, data, kMiB), "registered anew");
  Check(arena.record->Asked() == 2 && arena.record->Live().size() == 1, "the first one has ended");
}

void ExportDoesNotWait() {
  Arena arena;
  arena.Open();
  uint8_t* const data = arena.Allocate(kMiB);
  std::memset(data, 7, kMiB);
  Arena::Settle();
  arena.record->HoldBack(true);
  uint8_t* const other = arena.Allocate(kSlab);
  CheckCode(arena.TryExport(other, kSlab), StatusCode::kUnavailable, "not registered yet");
  Check(!arena.exports->Registered(*arena.ends.server, other, kSlab), "nor for a target");
  Check(arena.exports->Registered(*arena.ends.server, data, kMiB), "the first one is");
  int outside = 0;
  CheckCode(arena.TryExport(&outside, 4), StatusCode::kNotFound);
  CheckCode(arena.TryExport(data, 0), StatusCode::kInvalidArgument);
  Check(!arena.exports->Registered(*arena.ends.server, data, 0), "nothing is not registered");
  arena.record->HoldBack(false);
  Check(arena.Export(other, kSlab).offset == kMiB, "later");
  const Exports::Readable readable = arena.Export(data + 100, 4);
  Check(readable.keep != nullptr, "held by the offer");
  uint32_t read = 0;
  Status status(StatusCode::kInternal, "not ended");
  arena.ends.client->connection()->Get(readable.key, readable.offset, &read, 4, nullptr,
                                       [&status](Status got) { status = std::move(got); });
  CheckOk(status);
  Check(read == 0x07070707, "the peer reads it");
  for (const std::thread::id thread : arena.record->threads) {
    Check(thread != std::this_thread::get_id(), "never in the thread that exports");
  }
}

void WhatStraddlesSlabsHasOneRegistration() {
  Arena arena;
  arena.Open();
  uint8_t* const small = arena.Allocate(kMiB);
  Arena::Settle();
  Check(arena.record->Live() == Live{{0, kSlab}}, "a slab");
  Exports::Readable held = arena.Export(small, 4);
  uint8_t* const large = arena.Allocate(2 * kSlab);
  Arena::Settle();
  Check(arena.record->Live() == Live{{0, kSlab}, {0, 3 * kSlab}}, "a run, beside what is held");
  Check(arena.Export(large, 2 * kSlab).offset == kMiB, "all of it");
  Check(arena.Export(small, 4).key != held.key, "by the run's key");
  // What is let go ends in the background, with the next registration at the latest.
  held.keep.reset();
  arena.Allocate(2 * kSlab);
  Arena::Settle();
  Check(arena.record->Live() == Live{{0, 3 * kSlab}, {2 * kSlab, 3 * kSlab}},
        "the slab of its own has ended");
  // Of the segment's end only what is there.
  Arena odd(kSlab + kMiB);
  odd.Open();
  odd.Allocate(kSlab + kMiB / 2);
  Arena::Settle();
  Check(odd.record->Live() == Live{{0, kSlab + kMiB}}, "up to the end");
}

void OverlapIsBounded() {
  Arena arena(64 * kSlab);
  arena.Open();
  arena.Allocate(64 * kSlab - kMiB);
  Arena::Settle();
  Check(arena.record->Live() == Live{{0, 64 * kSlab}}, "all");
  arena.extents.Free(0);
  Check(arena.Discard(0, kMiB), "no more");
  Check(arena.record->Live().empty(), "none");
  for (uint64_t first = 0; first < 32; ++first) {
    arena.Export(arena.segment->data() + first * kSlab, 32 * kSlab);
    Arena::Settle();  // what ends is deregistered after it can be found no more
    Check(arena.record->Bytes() <= 2 * (first + 32) * kSlab, "no more than twice what is under it");
  }
}

void DeregisteredBeforeDiscarded() {
  Arena arena;
  arena.Open();
  uint8_t* const data = arena.Allocate(kMiB);
  std::memset(data, 7, kMiB);
  Exports::Readable readable = arena.Export(data, kMiB);
  Arena::Settle();  // what has been registered may still be held by who did it
  Check(!arena.Discard(0, kMiB), "not while a peer may read it");
  Check(!arena.Discard(kSlab / 2, kSlab / 2), "nor what is registered with it");
  Check(arena.Discard(kSlab, kSlab), "but other slabs");
  readable.keep.reset();
  Check(!arena.Discard(0, kMiB, PinnedRanges::Clock::now()), "nor what was read just now");
  arena.record->busy = true;
  Check(!arena.Discard(0, kMiB), "nor while a Get lands in it");
  Check(data[0] == 7 && arena.record->Live() == Live{{0, kSlab}}, "nothing happened to it");
  // It is given to nobody any more, and registered anew for who wants it.
  CheckCode(arena.TryExport(data, kMiB), StatusCode::kUnavailable);
  Arena::Settle();
  Check(arena.record->Live() == Live{{0, kSlab}, {0, kSlab}}, "anew");
  arena.record->busy = false;
  int before = 0;
  arena.record->on_end = [&](uint64_t, uint64_t) { before += data[0] == 7; };
  Check(arena.Discard(0, kMiB), "when it has ended");
  Check(before == 2 && arena.record->Live().empty(), "deregistered before the pages went");
  Check(data[0] == 0, "they are gone");
  arena.record->on_end = nullptr;
  // On demand again.
  Check(arena.Export(data, kMiB).offset == 0 && arena.record->Live() == Live{{0, kSlab}}, "again");
  CheckCode(
      arena.exports->Discard(Value(memory::Segment::Create(kMiB)), {0, kMiB}, Later()).status(),
      StatusCode::kFailedPrecondition);
}

// The free rest of a slab is idle all the time, but what is in use beside it would be deregistered
// with it: a step that takes longer than kIdle would find nothing registered at its next send.
void WhatIsInUseStaysRegistered() {
  Arena arena;
  arena.Open();
  uint8_t* const large = arena.Allocate(kSlab + 8);
  Arena::Settle();
  Check(arena.record->Live() == Live{{0, 2 * kSlab}}, "the slabs it lies in");
  const auto start = Later();
  const auto rest = [&](PinnedRanges::Clock::duration after) {
    return arena.Discard(2 * kSlab - kMiB, kMiB, start + after);
  };
  Check(!rest({}), "in use");
  // Free for a moment, when the arena has just come to it.
  arena.extents.Free(static_cast<uint64_t>(large - arena.segment->data()));
  Check(!rest(std::chrono::seconds(10)), "in use at the last look");
  Check(arena.record->Asked() == 1 && arena.Allocate(kSlab + 8) == large, "it is used again");
  Check(!rest(2 * kLater), "in use");
  arena.extents.Free(static_cast<uint64_t>(large - arena.segment->data()));
  // Little of it: most of what it pins would be nobody's.
  Check(arena.Allocate(kSlab - kMiB) == large, "at the same place");
  Check(rest(4 * kLater) && arena.record->Live().empty(), "idle for long");
}

// What lies between two registrations that stay, and is nobody's, does not stay for them.
void IdleNeighboursAreLetGo() {
  Arena arena;
  arena.Open();
  uint8_t* const first = arena.Allocate(kSlab + kSlab / 2);
  uint8_t* const second = arena.Allocate(kSlab + kSlab / 2);
  Arena::Settle();
  const Live all{{0, 2 * kSlab}, {kSlab, 2 * kSlab}};
  Check(arena.record->Live() == all, "a run for each");
  Exports::Readable held = arena.Export(second, 4);
  arena.extents.Free(static_cast<uint64_t>(first - arena.segment->data()));
  Check(!arena.Discard(kSlab, kSlab / 2), "the other one's slab");
  Check(arena.record->Live() == Live{{kSlab, 2 * kSlab}}, "the idle one is let go");
}

void NothingIsDiscardedWhileItIsBeingRegistered() {
  Arena arena;
  arena.Open();
  arena.record->HoldBack(true);
  arena.Allocate(kMiB);
  Eventually("it is being registered", [&] { return arena.record->Asked() == 1; });
  Check(!arena.Discard(0, kSlab), "not now");
  arena.record->HoldBack(false);
  Arena::Settle();
  Check(arena.Discard(0, kSlab) && arena.record->Live().empty(), "now");
}

void RefusalsAreKept() {
  TakeLog();
  Arena arena;
  arena.Open();
  {
    std::lock_guard<std::mutex> lock(arena.record->mu);
    arena.record->refused_at = 2;
  }
  uint8_t* const first = arena.Allocate(kMiB);
  arena.Export(first, kMiB);
  uint8_t* const large = arena.Allocate(2 * kSlab);
  Arena::Settle();
  for (int i = 0; i < 3; ++i) {
    CheckCode(arena.TryExport(large, 2 * kSlab), StatusCode::kResourceExhausted, "ulimit -l");
    Arena::Settle();
  }
  Check(arena.record->Asked() == 2, "not again");
  const std::vector<std::string> said = TakeLog();
  Check(said.size() == 1 && said[0].find("over pinning") != std::string::npos &&
            said[0].find("`ulimit -l`") != std::string::npos,
        "one line says what to do");
  CheckOk(arena.TryExport(first, kMiB));
  // Less may fit.
  arena.Export(large + kSlab, 4);
  {
    std::lock_guard<std::mutex> lock(arena.record->mu);
    arena.record->refused_from = 0;
  }
  uint8_t* const last = arena.Allocate(kSlab - kMiB);
  Arena::Settle();
  CheckCode(arena.TryExport(last, kSlab - kMiB), StatusCode::kResourceExhausted);
  const int asked = arena.record->Asked();
  CheckCode(arena.TryExport(last, kSlab - kMiB), StatusCode::kResourceExhausted);
  Arena::Settle();
  Check(arena.record->Asked() == asked && TakeLog().empty(), "the smaller size, too");
}

// An offer keeps what it names until it ends, and the pages with it.
void WhatAFailedDeviceRegisteredEndsWithItsOffers() {
  Arena arena;
  arena.Open();
  uint8_t* const data = arena.Allocate(kMiB);
  std::optional<Exports::Readable> held = arena.Export(data, 4);
  ++arena.record->failures;
  CheckCode(arena.TryExport(data, 4), StatusCode::kUnavailable, "not registered yet");
  Check(arena.Export(data, 4).key != held->key, "another one");
  Arena::Settle();
  Check(arena.record->Live() == Live{{0, kSlab}, {0, kSlab}}, "the first one is held");
  Check(!arena.Discard(0, kMiB), "and so are its pages");
  held.reset();
  Check(arena.Discard(0, kMiB) && arena.record->Live().empty(), "no more");
}

// What a link of an earlier device refuses is of use to the links of this one.
void ARefusedExportLeavesTheRegistration() {
  Arena arena;
  arena.Open();
  uint8_t* const data = arena.Allocate(kMiB);
  const fabric::Key key = arena.Export(data, 4).key;
  arena.record->strangers = 1;
  CheckCode(arena.TryExport(data, 4), StatusCode::kInvalidArgument, "another device's");
  Check(arena.Export(data, 4).key == key && arena.record->Asked() == 1, "the same one");
}

void ChildrenRegisterNothing() {
  Arena arena;
  arena.Open();
  uint8_t* const data = arena.Allocate(kMiB);
  arena.Export(data, kMiB);
  const pid_t child = fork();
  if (child == 0) {
    bool good = arena.TryExport(data, kMiB).code() == StatusCode::kNotFound;
    good = good && !arena.exports->Registered(*arena.ends.server, data, kMiB);
    arena.exports->Carved(data + 4 * kSlab, kMiB);
    arena.exports->Prepare(*arena.ends.server);
    good = good && arena.exports->Discard(arena.segment, {0, kSlab}, Later()).status().code() ==
                       StatusCode::kFailedPrecondition;
    _exit(good && arena.record->asked == 1 && arena.record->live.size() == 1 ? 0 : 1);
  }
  int status = -1;
  Check(waitpid(child, &status, 0) == child && status == 0, "the child did nothing");
  Check(arena.record->Live().size() == 1, "the parent's stays");
}

// A tensor that is not registered yet goes through the stream, and the next time it is read.
void TransfersFallBack() {
  const auto record = std::make_shared<Record>();
  World world([record] { return std::make_unique<PinningContext>(record); }, 4 * kSlab);
  world.Connect();
  world.KeepPumping();
  record->HoldBack(true);
  const Source source = world.MakeSource(3 * kMiB, 5, /*in_segment=*/true);
  const auto transfer = [&](bool registered) {
    const auto receiver = world.MakeReceiver();
    const std::optional<Offer> offer =
        world
            .MakeSender([](const Link* link, const Situation& situation) {
              return World::AlwaysOffer(link, situation);
            })
            .TryOffer(receiver->ask(), source.buffer, source.OnReleased());
    Check(offer.has_value() && offer->readable.has_value() == registered, "how it is offered");
    if (registered) {
      Check(!Value(world.exports->Discard(world.segment, {kSlab / 2, kMiB}, Later())),
            "an offer keeps its slab");
    }
    const Destination destination(3 * kMiB, true);
    const auto outcome = std::make_shared<Outcome>();
    receiver->Start(*offer, destination.target, outcome->Done(outcome));
    CheckOk(outcome->Wait());
    Check(HasPattern(destination.bytes->data(), 3 * kMiB, 5), "its bytes");
  };
  transfer(false);
  record->HoldBack(false);
  Arena::Settle();
  transfer(true);
  Check(world.client->Count().rendezvous == 1 && world.client->Count().chunk_bytes == 3 * kMiB,
        "once each");
  Eventually("the offer is released", [&] { return *source.released == 2; });
  Eventually("and its slab can go", [&] {
    return Value(world.exports->Discard(world.segment, {kSlab / 2, kMiB}, Later()));
  });
  // A staged copy's slab is held as long.
  const Source outside = world.MakeSource(kMiB, 6, /*in_segment=*/false);
  const auto stage = [&world](uint64_t) {
    return std::shared_ptr<uint8_t>(world.segment, world.segment->data() + 2 * kSlab);
  };
  const auto discards = [&world] {
    return Value(world.exports->Discard(world.segment, {2 * kSlab + 8 * kMiB, kMiB}, Later()));
  };
  for (const bool registered : {false, true}) {
    const auto receiver = world.MakeReceiver();
    const std::optional<Offer> offer = Sender(world.server, stage, World::AlwaysOffer)
                                           .TryOffer(receiver->ask(), outside.buffer, nullptr);
    Check(offer.has_value() && offer->readable.has_value() == registered, "how it is staged");
    Arena::Settle();
    Check(!registered || !discards(), "held with the staged copy");
    world.server->offers().Release(receiver->ask().receiver, receiver->ask().ticket);
  }
  Check(discards(), "and then not");
}

// A read into memory that is not registered yet would register it in the thread that polls.
void TargetsAreRegisteredFirst() {
  const auto theirs = std::make_shared<Record>();
  const auto ours = std::make_shared<Record>();
  int made = 0;
  World world([&] { return std::make_unique<PinningContext>(made++ == 0 ? theirs : ours); },
              2 * kSlab);
  const auto segment = Value(memory::Segment::Create(2 * kSlab));
  const auto exports = std::make_shared<Exports>(
      [&world](const std::string&) { return world.client_context.get(); });
  exports->AddSegment(segment);
  const auto node = Node::Create({{"test"}, exports, nullptr});
  auto pair = fabric::testing::Attach(*world.server_context, *world.client_context);
  const LinkId id = NewToken();
  const auto server_end = std::make_shared<Link>(
      Link::Description{End::kServer, node->id(), "client:2", "test", id, kFeatures},
      std::move(pair.acceptor));
  const auto client_end = std::make_shared<Link>(
      Link::Description{End::kClient, world.server->id(), "server:2", "test", id, kFeatures},
      std::move(pair.connector));
  world.server->AddLink(server_end);
  node->AddLink(client_end);

  const Source source = world.MakeSource(kMiB, 5, /*in_segment=*/true);
  Eventually("the source is registered",
             [&] { return world.exports->Registered(*server_end, source.buffer.data, kMiB); });
  ours->HoldBack(true);
  for (const uint64_t chunked : {kMiB, uint64_t{0}}) {
    Receiver::Options options;
    options.node = node;
    options.caller = world.calls;
    options.task = "/job:ps";
    options.chunks = {kMiB, 1};
    const auto receiver = Receiver::Create(std::move(options));
    const auto offer =
        world.MakeSender().TryOffer(receiver->ask(), source.buffer, source.OnReleased());
    Check(offer.has_value() && offer->readable.has_value(), "it is offered for reading");
    std::memset(segment->data(), 0, kMiB);
    const auto outcome = std::make_shared<Outcome>();
    const Counters before = node->Count();
    receiver->Start(*offer, {segment->data(), kMiB, segment}, outcome->Done(outcome));
    CheckOk(outcome->Wait());
    Check(HasPattern(segment->data(), kMiB, 5), "its bytes");
    const Counters after = node->Count();
    Check(after.chunk_bytes - before.chunk_bytes == chunked &&
              after.rendezvous_bytes - before.rendezvous_bytes == kMiB - chunked,
          "by chunks at first, and then read");
    ours->HoldBack(false);
    Arena::Settle();
  }
  Check(ours->Live() == Live{{0, kSlab}}, "the target's slab");
  node->RemoveLink(client_end);
  world.server->RemoveLink(server_end);
}

void ThreadsCarveExportAndDiscard() {
  Arena arena(16 * kSlab);
  arena.Open();
  std::atomic<bool> ends{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 2000 / kSlowdown; ++round) {
        const uint64_t size = kMiB * (1 + (round * 7 + i) % 24);
        uint8_t* const data = arena.Allocate(size);
        auto readable = arena.exports->Export(*arena.ends.server, data, size);
        if (readable.ok()) {
          const auto offset = static_cast<uint64_t>(data - arena.segment->data());
          Check(!arena.Discard(offset, size), "what is exported stays");
        }
        arena.extents.Free(static_cast<uint64_t>(data - arena.segment->data()));
      }
    });
  }
  std::thread trims([&] {
    while (!ends) {
      for (const Range& range : arena.extents.Trim(ExtentAllocator::Clock::now() + kLater, kSlab)) {
        arena.extents.Return(range, arena.Discard(range.offset, range.length));
      }
    }
  });
  for (std::thread& thread : threads) thread.join();
  ends = true;
  trims.join();
  Arena::Settle();
  // A trim, whose clock is ahead, may have seen a run in use.
  Eventually("all can go", [&] { return arena.Discard(0, 16 * kSlab, Later() + kLater); });
  Check(arena.record->Live().empty(), "none is left");
}

}  // namespace

int main() {
  SetLogSink([](Severity, const std::string& line) {
    std::lock_guard<std::mutex> lock(log_mu);
    log_lines.push_back(line);
  });
  fabric::testing::RunAll(
      "pinned ranges",
      {
          {"carved slabs", CarvedSlabsAreRegisteredOnce},
          {"later contexts", LaterContextsGetWhatIsInUse},
          {"failed devices", FailedDevicesAreReplaced},
          {"no waiting", ExportDoesNotWait},
          {"straddling", WhatStraddlesSlabsHasOneRegistration},
          {"bounded overlap", OverlapIsBounded},
          {"discarding", DeregisteredBeforeDiscarded},
          {"in use", WhatIsInUseStaysRegistered},
          {"idle neighbours", IdleNeighboursAreLetGo},
          {"one at a time", NothingIsDiscardedWhileItIsBeingRegistered},
          {"refusals", RefusalsAreKept},
          {"offers of a failed device", WhatAFailedDeviceRegisteredEndsWithItsOffers},
          {"a refused export", ARefusedExportLeavesTheRegistration},
          {"children", ChildrenRegisterNothing},
          {"targets", TargetsAreRegisteredFirst},
          {"transfers", TransfersFallBack},
          {"threads", ThreadsCarveExportAndDiscard},
      });
  return 0;
}
