// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A transfer's two ends: the right bytes over every way, and an error where they cannot be had.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/units/transfer_scenarios.h"
#include "third_party/ar_grpc/fabric/shm/shm.h"

namespace {

using namespace ar_grpc;                     // NOLINT
using namespace ar_grpc::protocol;           // NOLINT
using namespace ar_grpc::protocol::testing;  // NOLINT

void TheRightBytesByChunks() {
  World world(World::Loopback());
  world.ConnectTcp();
  uint64_t sum = 0;
  for (const uint64_t size : kSizes) {
    CheckOk(Move(&world, size, size, /*in_segment=*/true, /*kept=*/true));
    sum += size;
  }
  const Counters counted = world.client->Count();
  Check(counted.chunk_bytes == sum && counted.rendezvous == 0, "all went by chunks");
}

// Operations that end late, in any order, on other threads, some of them half done.
void NoWrongBytesOverAHostileFabric() {
  fabric::hostile::Options options;
  options.failing_percent = 20;
  const Ended ended = RightBytesInAllWays(World::Hostile(options));
  Check(ended.received.rendezvous > 0 && ended.received.chunk_bytes > 0,
        "reads, and chunks where they failed");
}

// The memory is the caller's from the end on, whatever calls say later.
void CallsThatAreAnsweredTwice() {
  World world(World::Loopback());
  world.ConnectTcp();
  world.calls->twice = true;
  for (int round = 0; round < 10; ++round) {
    CheckOk(Move(&world, 5000000, round, /*in_segment=*/true, /*kept=*/false));
    Check(!world.calls->MayStillWrite(), "nothing is written after the end");
  }
}

// How large the chunks are, and how many at the same time, follows from the stream's figures.
void ChunksFollowTheFigures() {
  World world(World::Loopback());
  world.ConnectTcp();
  const ChunkPlan plan = PlanChunks(World::Figured());
  Check(plan.bytes == 1 << 20 && plan.in_flight == 8, "the plan");
  Receiver::Options options;
  options.node = world.client;
  options.caller = world.calls;
  const std::shared_ptr<Receiver> receiver = Receiver::Create(options);
  Source source = world.MakeSource(9000001, 5, true);
  const auto offer = world.MakeSender().TryOffer(receiver->ask(), source.buffer, nullptr);
  Destination to(9000001, true);
  const auto outcome = std::make_shared<Outcome>();
  world.calls->hold = true;
  receiver->Start(*offer, to.target, outcome->Done(outcome));
  Check(world.calls->started == 8, "so many at the same time");
  world.calls->hold = false;
  world.calls->LetGo();
  CheckOk(outcome->Wait());
  Check(world.calls->started == 9 && HasPattern(to.bytes->data(), 9000001, 5), "the right bytes");
}

// One error takes the connection with it: what follows goes by chunks over the other link.
void AFailureThatClosesTheLink() {
  fabric::hostile::Options options;
  options.failing_percent = 30;
  options.failure_closes = true;
  World world(World::Hostile(options));
  world.ConnectTcp();
  world.Connect();
  for (uint64_t i = 0; i < 30; ++i) CheckOk(Move(&world, 300000 + i, i, i & 1, i & 2));
  Check(world.client->Count().chunk_bytes > 0, "chunks");
}

// A thread of the pool that comes when all is done finds nothing to do, and has kept nothing.
void ALateHelperKeepsNothing() {
  World world(World::Loopback());
  world.Connect();
  // The thread that has the offer copies, too, up to 4 MiB.
  const std::pair<uint64_t, size_t> kHelpers[] = {
      {1 << 20, 0}, {(2 << 20) - 1, 0}, {2 << 20, 1}, {3 << 20, 2}, {6 << 20, 4}};
  for (const auto& [size, helpers] : kHelpers) {
    // Who runs first copies everything; the others' turn comes after the end.
    std::vector<std::function<void()>> late;
    const auto first_runs = [&](std::function<void()> task) {
      late.push_back(std::move(task));
      return true;
    };
    const std::shared_ptr<Receiver> receiver = world.MakeReceiver(first_runs);
    const std::weak_ptr<Receiver> alive = receiver;
    Source source = world.MakeSource(size, 4, true);
    const auto offer =
        world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer), source.OnReleased());
    Destination to(size, /*kept=*/true);
    const auto outcome = std::make_shared<Outcome>();
    receiver->Start(*offer, to.target, outcome->Done(outcome));
    to.target.keep.reset();
    Check(late.size() == helpers, std::to_string(late.size()) + " helpers were asked for");
    if (!outcome->Ended()) {
      late.back()();
      late.pop_back();
    }
    CheckOk(outcome->Wait());
    Check(HasPattern(to.bytes->data(), size, 4), "the right bytes");
    Check(to.bytes.use_count() == 1, "the target is the caller's alone, whoever is late");
    Check(receiver.use_count() == 1, "and so is the receiver");
    for (const auto& task : late) task();
    Check(outcome->dones == 1, "late helpers do nothing");
    world.Pump();
    Check(*source.released == 1, "let go");
  }
}

// What follows a transfer may wait for the link's end, which waits for operations under way.
void TheEndIsNotWithinAnOperation() {
  World world(World::Loopback());
  const Ends ends = world.Connect();
  const std::shared_ptr<Receiver> other = world.MakeReceiver();
  Source held = world.MakeSource(5000, 1, true);
  Check(world.MakeSender().TryOffer(other->ask(), held.buffer, held.OnReleased()).has_value(),
        "an offer");
  const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
  Source source = world.MakeSource(5000, 2, true);
  const auto offer =
      world.MakeSender().TryOffer(receiver->ask(), source.buffer, source.OnReleased());
  Destination to(5000, true);
  bool ended = false;
  receiver->Start(*offer, to.target, [&](const Status& status) {
    CheckOk(status);
    world.Disconnect(ends);
    Check(*held.released == 1, "the link's end lets go while the transfer's end runs");
    ended = true;
  });
  Check(ended, "read at once");
}

void WhatCannotBeReadComesInChunks() {
  World world(World::Loopback());
  world.Connect();
  // The fabric gives a status where this process cannot map the peer's memory.
  Source source = world.MakeSource(3 << 20, 1, /*in_segment=*/true);
  for (const bool readable : {true, false}) {
    const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
    std::optional<Offer> offer =
        world.MakeSender().TryOffer(receiver->ask(), source.buffer, nullptr);
    // A key that the peer never gave is a lie, and an error; a link that never was is one that
    // ended.
    if (readable) {
      offer->readable->key = "no such key";
    } else {
      offer->readable->link = NewToken();
    }
    Destination to(3 << 20, true);
    const auto outcome = std::make_shared<Outcome>();
    receiver->Start(*offer, to.target, outcome->Done(outcome));
    const Status status = outcome->Wait();
    if (readable) {
      CheckCode(status, StatusCode::kInvalidArgument);
    } else {
      CheckOk(status);
      Check(HasPattern(to.bytes->data(), 3 << 20, 1), "the right bytes");
      Check(world.calls->last_timeout_ms == Receiver::kLateCallMs,
            "a peer that has gone costs 5 s");
    }
    Eventually("released", [&] {
      world.Pump();
      return world.server->Count().offers_open == 0;
    });
  }
}

// No memory for what comes over a fabric that answers late: the calls write under the gate.
void WithoutABounceBufferChunksServe() {
  World world(World::Hostile({3, 100, 0, false}));
  world.Connect();
  Receiver::Options options;
  options.node = world.client;
  options.caller = world.calls;
  options.allocate = [](uint64_t) { return std::shared_ptr<uint8_t>(); };
  for (const bool kept : {false, true}) {
    const std::shared_ptr<Receiver> receiver = Receiver::Create(options);
    Source source = world.MakeSource(100000, 5, true);
    const auto offer = world.MakeSender().TryOffer(receiver->ask(), source.buffer, nullptr);
    Destination to(100000, kept);
    const auto outcome = std::make_shared<Outcome>();
    receiver->Start(*offer, to.target, outcome->Done(outcome));
    CheckOk(outcome->Wait());
    Check(HasPattern(to.bytes->data(), 100000, 5), "the right bytes");
    Check(world.client->Count().chunk_bytes == 100000,
          "by chunks only where a bounce buffer is needed");
    Check(world.calls->last_timeout_ms == 0, "the peer has not gone");
  }
}

void APoolThatTakesNothing() {
  for (const auto& make : {World::Loopback(), World::Hostile()}) {
    World world(make);
    world.Connect();
    for (const bool kept : {false, true}) {
      CheckOk(
          Move(&world, 5 << 20, 3, true, kept, [](const std::function<void()>&) { return false; }));
      // One that is full runs what it gets at once.
      CheckOk(Move(&world, 5 << 20, 3, true, kept, [](const std::function<void()>& task) {
        task();
        return true;
      }));
    }
  }
}

// Whoever waits for the bytes may change them in place, which needs them not to be shared, or free
// them; a copier that the pool has not run yet must not keep them.
void TheTargetIsLetGoBeforeTheEnd() {
  for (const uint64_t size : {uint64_t{2} << 20, uint64_t{9} << 20}) {
    World world(World::Loopback());
    world.Connect();
    std::vector<std::function<void()>> late;
    const auto receiver = world.MakeReceiver([&](std::function<void()> task) {
      // The first copier of what is too large for the receiving thread.
      if (size > kReadHere && late.empty()) {
        task();
        task = [] {};
      }
      late.push_back(std::move(task));
      return true;
    });
    Source source = world.MakeSource(size, 8, true);
    const auto offer = world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer), {});
    Check(offer.has_value(), "an offer");
    Destination to(size, true);
    const std::shared_ptr<std::vector<uint8_t>> bytes = to.bytes;
    long users = 0;
    receiver->Start(*offer, std::move(to.target), [&](const Status& status) {
      CheckOk(status);
      users = bytes.use_count();
    });
    Check(users == 2, "only the test has the target: " + std::to_string(users));
    Check(HasPattern(bytes->data(), size, 8), "the bytes");
    Check(!late.empty(), "copiers that are late");
    for (const std::function<void()>& task : late) task();
  }
}

void BadOffersAreErrors() {
  World world(World::Loopback());
  world.Connect();
  struct Bad {
    StatusCode code;
    std::function<void(Offer*, TargetBuffer*)> change;
  };
  const std::vector<Bad> bads = {
      {StatusCode::kInternal, [](Offer* offer, TargetBuffer*) { ++offer->size; }},
      {StatusCode::kInternal, [](Offer* offer, TargetBuffer*) { ++offer->ticket; }},
      {StatusCode::kInternal, [](Offer*, TargetBuffer* target) { --target->size; }},
      {StatusCode::kInvalidArgument,
       [](Offer* offer, TargetBuffer*) { offer->readable->offset = UINT64_MAX - 5000; }},
      // A destination that could not be allocated.
      {StatusCode::kResourceExhausted,
       [](Offer*, TargetBuffer* target) { target->into = nullptr; }},
  };
  for (const Bad& bad : bads) {
    const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
    Source source = world.MakeSource(5000, 1, true);
    std::optional<Offer> offer =
        world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer), source.OnReleased());
    Destination to(5000, true);
    bad.change(&*offer, &to.target);
    const auto outcome = std::make_shared<Outcome>();
    receiver->Start(*offer, to.target, outcome->Done(outcome));
    CheckCode(outcome->Wait(), bad.code);
    Eventually("the source is let go", [&] {
      world.Pump();
      return *source.released == 1;
    });
    Check(std::count(to.bytes->begin(), to.bytes->end(), 0xEE) == 5000, "nothing was written");
  }
}

void ChunksThatFailAreErrors() {
  World world(World::Loopback());
  world.ConnectTcp();
  world.calls->refuse = true;
  CheckCode(Move(&world, 3 << 20, 1, true, true), StatusCode::kUnavailable, "nobody listens");
  // And where the link had gone, whatever the calls say.
  const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
  Destination to(10, true);
  const auto outcome = std::make_shared<Outcome>();
  Offer offer{world.server->id(), receiver->ask().ticket, 10, Offer::Readable{}};
  world.calls->refuse = false;
  receiver->Start(offer, to.target, outcome->Done(outcome));
  CheckCode(outcome->Wait(), StatusCode::kUnavailable, "the connection ended while");
}

void WhatIsNotOffered() {
  World world(World::Loopback());
  const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
  Source source = world.MakeSource(5000, 1, true);
  const auto offered = [&](Sender sender) {
    return sender.TryOffer(receiver->ask(), source.buffer, source.OnReleased()).has_value();
  };
  Check(!offered(world.MakeSender()), "without a link nothing is held");
  world.Connect();
  Check(!offered(world.MakeSender([](const Link*, const Situation&) { return Scheme::kEager; })),
        "a small one is sent");
  source.buffer.size = 0;
  Check(!offered(world.MakeSender()), "nothing is sent at once");
  source = world.MakeSource(5000, 1, /*in_segment=*/false);
  Sender full(
      world.server, [](uint64_t) { return std::shared_ptr<uint8_t>(); },
      [](const Link* link, const Situation&) {
        return link == nullptr ? Scheme::kEager : Scheme::kStagedRead;
      });
  Check(!offered(full), "no staging memory: the bytes are sent");
  Sender foreign(
      world.server,
      [](uint64_t size) {
        return std::shared_ptr<uint8_t>(new uint8_t[size], std::default_delete<uint8_t[]>());
      },
      [](const Link* link, const Situation&) {
        return link == nullptr ? Scheme::kEager : Scheme::kStagedRead;
      });
  Check(!offered(foreign), "staging memory that no peer can read");
  Check(*source.released == 0, "what is sent is not released");
  Check(world.server->Count().offers_open == 0, "nothing is held");
}

void FarServersAreKnown() {
  constexpr double kFarUs = 1 << 20;
  World world(World::Hostile({}));
  const Ends near = world.Connect();
  Check(near.server->CountEager(1000, {}) == 0 && near.server->CountEager(1000, {}) == 0,
        "of a near peer nothing is counted");
  world.Disconnect(near);
  const Ends far = world.Connect("test", kFarUs);
  Check(world.client->Paths().at("server:1").far_us == kFarUs, "far");
  world.Disconnect(far);
  const Ends again = world.Connect();
  Check(world.client->Paths().at("server:1").far_us == 0, "the last one tells");
  world.Disconnect(again);
}

void WhatIsAheadOfATensor() {
  using std::chrono::milliseconds;
  constexpr double kFarUs = 1 << 20;
  World world(World::Hostile({}));
  const Ends far = world.Connect("test", kFarUs);
  Link& link = *far.server;
  const auto now = Link::Clock::now();
  const uint64_t window = fabric::hostile::kStreamWindow;
  const auto ahead_at = [&](Link::Clock::time_point time) { return link.CountEager(0, time); };
  Check(link.CountEager(window, now) == 0 && link.CountEager(window, now) == window,
        "those before");
  Check(ahead_at(now) == 2 * window, "all of it");
  Check(ahead_at(now - milliseconds(1)) == 2 * window, "an earlier reading");
  const auto half = std::chrono::microseconds(1 << 19);
  Check(ahead_at(now + half) == window * 3 / 2, "half a window in half the time");
  link.UncountEager(window);
  Check(ahead_at(now + half) == window / 2, "one went another way");
  Check(ahead_at(now + 3 * half) == 0, "nothing is left");
  link.UncountEager(window);
  Check(ahead_at(now + 3 * half) == 0, "never less");
  world.Disconnect(far);
}

// Minutes of distance: nothing is taken while this runs.
void ManySendersOverfillNoStream() {
  World world(World::Hostile({}));
  world.Connect("test", 1e9);
  std::vector<uint64_t> ahead;
  const auto eager = [&](const Link*, const Situation& situation) {
    ahead.push_back(situation.bytes_ahead);
    return ahead.size() == 2 ? Scheme::kRead : Scheme::kEager;
  };
  const Source source = world.MakeSource(60000, 1, /*in_segment=*/true);
  std::vector<std::shared_ptr<Receiver>> receivers;
  for (const bool offered : {false, true, false, false}) {
    receivers.push_back(world.MakeReceiver());
    Check(world.MakeSender(eager)
                  .TryOffer(receivers.back()->ask(), source.buffer, nullptr)
                  .has_value() == offered,
          "as chosen");
  }
  // But for a byte or two.
  for (uint64_t& bytes : ahead) bytes = (bytes + 50) / 100 * 100;
  Check(ahead == std::vector<uint64_t>{0, 60000, 60000, 120000}, "what was sent, not offered");
}

void AStagedSourceIsFreeAtOnce() {
  World world(World::Loopback());
  world.Connect();
  Source source = world.MakeSource(1 << 20, 9, /*in_segment=*/false);
  const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
  const auto offer =
      world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer), source.OnReleased());
  Check(*source.released == 1 && source.alive.expired(), "free before the receiver has read");
  Check(world.server->Count().offers_open == 1, "the copy is held");
  Destination to(1 << 20, true);
  const auto outcome = std::make_shared<Outcome>();
  receiver->Start(*offer, to.target, outcome->Done(outcome));
  CheckOk(outcome->Wait());
  Check(HasPattern(to.bytes->data(), 1 << 20, 9), "the right bytes");
  world.Pump();
  Check(*source.released == 1 && world.server->Count().offers_open == 0, "and the copy goes");
}

void AnotherTryOfTheSameCall() {
  World world(World::Loopback());
  world.Connect();
  const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
  Source first = world.MakeSource(5000, 1, true);
  Source second = world.MakeSource(5000, 2, true);
  Sender sender = world.MakeSender();
  Check(sender.TryOffer(receiver->ask(), std::move(first.buffer), first.OnReleased()).has_value(),
        "an offer");
  const auto offer =
      sender.TryOffer(receiver->ask(), std::move(second.buffer), second.OnReleased());
  Check(offer.has_value() && *first.released == 1 && *second.released == 0, "replaced");
  Destination to(5000, false);
  const auto outcome = std::make_shared<Outcome>();
  receiver->Start(*offer, to.target, outcome->Done(outcome));
  CheckOk(outcome->Wait());
  Check(HasPattern(to.bytes->data(), 5000, 2), "the second's bytes");
  world.Pump();
  Check(*second.released == 1, "released");
  // A third, of a request that was under way all the time.
  Source third = world.MakeSource(5000, 3, true);
  Check(!sender.TryOffer(receiver->ask(), third.buffer, third.OnReleased()).has_value(),
        "a late offer is not held");
  Check(*third.released == 0 && world.server->Count().offers_open == 0, "nothing is held");
}

void ChunksAreChecked() {
  World world(World::Loopback());
  world.Connect();
  const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
  Source source = world.MakeSource(uint64_t{9} << 20, 1, true);
  Sender sender = world.MakeSender();
  Check(sender.TryOffer(receiver->ask(), source.buffer, nullptr).has_value(), "an offer");
  ChunkRequest request{receiver->ask().receiver, receiver->ask().ticket, 100, 50};
  const auto piece = Value(sender.ServeChunk(request));
  Check(piece.length == 50 && piece.data == source.buffer.data + 100, "a piece");
  for (const auto& [offset, length] : std::vector<std::pair<uint64_t, uint64_t>>{{(9 << 20) - 1, 2},
                                                                                 {(9 << 20) + 1, 1},
                                                                                 {UINT64_MAX, 2},
                                                                                 {0, (8 << 20) + 1},
                                                                                 {5, UINT64_MAX}}) {
    request.offset = offset;
    request.length = length;
    CheckCode(sender.ServeChunk(request).status(), StatusCode::kInvalidArgument);
  }
  request = {receiver->ask().receiver, receiver->ask().ticket + 1, 0, 1};
  CheckCode(sender.ServeChunk(request).status(), StatusCode::kUnavailable);
  request = {world.server->id(), receiver->ask().ticket, 0, 1};
  CheckCode(sender.ServeChunk(request).status(), StatusCode::kUnavailable);
  request = {receiver->ask().receiver, receiver->ask().ticket, 0, 0};
  CheckOk(sender.ServeChunk(request).status());
  Check(world.server->Count().offers_open == 0, "released");
  Check(piece.data[0] == Pattern(100, 1), "a piece keeps its memory");
}

}  // namespace

int main() {
  const World::MakeContext over_shm = World::Borrow(&fabric::shm::Get());
  fabric::testing::RunAll("transfer",
                          {
                              {"bytes over loopback", [] { AllByReads(World::Loopback()); }},
                              {"bytes over shm", [=] { AllByReads(over_shm); }},
                              {"bytes by chunks", TheRightBytesByChunks},
                              {"a hostile fabric", NoWrongBytesOverAHostileFabric},
                              {"answered twice", CallsThatAreAnsweredTwice},
                              {"figures", ChunksFollowTheFigures},
                              {"a failure closes", AFailureThatClosesTheLink},
                              {"a late helper", ALateHelperKeepsNothing},
                              {"no end in an operation", TheEndIsNotWithinAnOperation},
                              {"unreadable", WhatCannotBeReadComesInChunks},
                              {"no bounce buffer", WithoutABounceBufferChunksServe},
                              {"a pool without threads", APoolThatTakesNothing},
                              {"the target", TheTargetIsLetGoBeforeTheEnd},
                              {"bad offers", BadOffersAreErrors},
                              {"chunks that fail", ChunksThatFailAreErrors},
                              {"not offered", WhatIsNotOffered},
                              {"far servers", FarServersAreKnown},
                              {"ahead", WhatIsAheadOfATensor},
                              {"many senders", ManySendersOverfillNoStream},
                              {"staged", AStagedSourceIsFreeAtOnce},
                              {"another try", AnotherTryOfTheSameCall},
                              {"chunks are checked", ChunksAreChecked},
                          });
  return 0;
}
