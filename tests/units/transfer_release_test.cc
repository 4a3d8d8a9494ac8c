// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What a sender holds goes once, and soon: whatever becomes of the links and of the messages.

#include <poll.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/units/transfer_testing.h"
#include "third_party/ar_grpc/protocol/release_batch.h"

namespace {

using namespace ar_grpc;                     // NOLINT
using namespace ar_grpc::protocol;           // NOLINT
using namespace ar_grpc::protocol::testing;  // NOLINT

fabric::hostile::Options Late(int largest_delay_us) {
  fabric::hostile::Options options;
  options.failing_percent = 0;
  options.largest_delay_us = largest_delay_us;
  return options;
}

struct Running {
  std::shared_ptr<Receiver> receiver;
  Source source;
  std::optional<Offer> offer;
  Destination to;
  std::shared_ptr<Outcome> outcome = std::make_shared<Outcome>();

  Running(World* world, uint64_t size, uint64_t seed, bool in_segment = true,
          bool sender_waits = false)
      : receiver(world->MakeReceiver(nullptr, nullptr, sender_waits)),
        source(world->MakeSource(size, seed, in_segment)),
        to(size, false) {
    offer = world->MakeSender().TryOffer(receiver->ask(), std::move(source.buffer),
                                         source.OnReleased());
    Check(offer.has_value(), "an offer");
  }
  void Start() { receiver->Start(*offer, to.target, outcome->Done(outcome)); }
  bool Right(uint64_t seed) { return HasPattern(to.bytes->data(), to.bytes->size(), seed); }
};

// With another link the bytes come by calls; they were held for it all the time.
void ALinkThatClosesAmidTheRead() {
  for (const bool server_first : {false, true}) {
    World world(World::Hostile(Late(20000)));
    world.ConnectTcp();
    const Ends ends = world.Connect();
    Running running(&world, 1 << 20, 7);
    running.Start();
    world.Disconnect(ends, server_first);
    CheckOk(running.outcome->Wait());
    Check(running.Right(7), "the right bytes");
    // A read that was over before the link closed left its release in a ring that nobody reads any
    // more: the next transfer's call tells of it.
    Running next(&world, 64, 8);
    next.Start();
    CheckOk(next.outcome->Wait());
    Eventually("let go", [&] { return *running.source.released == 1; });
  }
}

// Without another link nothing is held any more, and it is an error, never other bytes.
void TheLastLinkClosesAmidTheRead() {
  World world(World::Hostile(Late(20000)));
  const Ends ends = world.Connect();
  Running running(&world, 1 << 20, 7);
  running.Start();
  world.Disconnect(ends);
  const Status status = running.outcome->Wait();
  if (status.ok()) {
    Check(running.Right(7), "the right bytes");
  } else {
    CheckCode(status, StatusCode::kUnavailable, "the connection ended while");
    Check(world.calls->last_timeout_ms == Receiver::kLateCallMs, "a peer that has gone costs 5 s");
  }
  Eventually("let go", [&] { return *running.source.released == 1; });
}

// Not before the peer's last read over the link, where that can be waited for.
void WhatIsHeldGoesWithTheLastLink() {
  World world(World::Loopback());
  const Ends first = world.Connect();
  const Ends second = world.Connect();
  Running held(&world, 5000, 1);
  Running staged(&world, 5000, 2, /*in_segment=*/false);
  Check(*staged.source.released == 1, "free at once");
  world.Disconnect(first);
  Check(*held.source.released == 0 && world.server->Count().offers_open == 2,
        "held for the second");
  world.Disconnect(second, /*server_first=*/true);
  Check(*held.source.released == 1 && *staged.source.released == 1, "let go once");
  Check(held.source.alive.expired() && world.server->Count().offers_open == 0, "and freed");
}

// The offer names the oldest link; when it has gone, the copy that it would be is not trusted.
void AnOfferOfALinkThatHasGone() {
  World world(World::Loopback());
  const Ends first = world.Connect();
  world.Connect();
  Running running(&world, 3 << 20, 3);
  Check(running.offer->readable->link == first.server->id(), "the oldest link");
  world.Disconnect(first);
  running.Start();
  CheckOk(running.outcome->Wait());
  Check(running.Right(3) && world.client->Count().chunk_bytes == 3 << 20, "by chunks");
  Eventually("let go", [&] {
    world.Pump();
    return *running.source.released == 1;
  });
}

// A release that its link does not take any more goes by a call, or over another link.
void AReleaseWhoseLinkHasEnded() {
  World world(World::Loopback());
  const Ends first = world.Connect();
  world.ConnectTcp();
  Running by_call(&world, 5000, 1);
  world.Disconnect(first);
  by_call.receiver->GiveUp();
  Check(*by_call.source.released == 1 && world.calls->releases == 1, "by a call");
  world.Connect();
  Running over_other(&world, 5000, 2);
  over_other.Start();
  CheckOk(over_other.outcome->Wait());
  Running given_up(&world, 5000, 3);
  given_up.receiver->GiveUp();
  Eventually("let go by messages", [&] {
    world.Pump();
    return *over_other.source.released == 1 && *given_up.source.released == 1;
  });
  Check(world.calls->releases == 1, "by no call");
}

// Posted, but the link ends before the peer has read it.
void AReleaseThatIsLostWithItsLink() {
  World world(World::Loopback());
  const Ends first = world.Connect();
  const Ends second = world.Connect();
  Running running(&world, 5000, 1);
  running.Start();
  CheckOk(running.outcome->Wait());
  world.Disconnect(first);  // without a Pump
  Check(*running.source.released == 0, "not yet");
  world.Pump();
  Check(*running.source.released == 1, "told over the other link");

  // And where no messages go over the other one, by the next transfer's calls.
  world.ConnectTcp();
  Running lost(&world, 5000, 2);
  lost.Start();
  CheckOk(lost.outcome->Wait());
  world.Disconnect(second);
  Check(*lost.source.released == 0, "not yet");
  Running next(&world, 5000, 3);
  next.Start();
  CheckOk(next.outcome->Wait());
  Check(*lost.source.released == 1, "told by a call");
  // The piece that the last call served may be held for a moment more.
  Eventually("told by a call", [&] { return *next.source.released == 1; });

  // Or over a link that comes.
  const Ends third = world.Connect();
  Running again(&world, 5000, 4);
  again.Start();
  CheckOk(again.outcome->Wait());
  world.Disconnect(third);
  Check(*again.source.released == 0, "not yet");
  world.Connect();
  world.Pump();
  Check(*again.source.released == 1, "told over the new link");
}

// As while the connection that it would go over is made anew.
void AReleaseWhoseCallIsLost() {
  World world(World::Loopback());
  world.ConnectTcp();
  world.calls->releases_to_lose = 1;
  Running lost(&world, 5000, 1);
  lost.Start();
  CheckOk(lost.outcome->Wait());
  Running next(&world, 5000, 2);
  Check(*lost.source.released == 0, "not yet");
  next.Start();
  CheckOk(next.outcome->Wait());
  Eventually("told with the next one", [&] { return *lost.source.released == 1; });
}

// More releases than the ring of messages has room for arrive all the same.
void ReleasesOverAFullRing() {
  World world(World::Loopback());
  const Ends ends = world.Connect();
  constexpr int kMany = 2000;
  std::vector<std::unique_ptr<Running>> all;
  for (int i = 0; i < kMany; ++i) {
    all.push_back(std::make_unique<Running>(&world, 64, i));
    all.back()->Start();
    CheckOk(all.back()->outcome->Wait());
  }
  Check(ends.client->HasUnsentMessages(), "the ring is full");
  std::vector<Offers::Held> released;
  size_t taken = 0;
  CheckOk(world.server->TakeMessages(ends.server.get(), kMostMessages, &released, &taken));
  Check(released.size() == kMostMessages && taken == kMostMessages, "bounded");
  released.clear();
  int left = 0;
  for (const auto& one : all) left += *one->source.released == 0;
  Check(left == kMany - static_cast<int>(kMostMessages), "so many were let go");
  Eventually("all are let go", [&] {
    world.Pump();
    return world.server->Count().offers_open == 0;
  });
  for (const auto& one : all) Check(*one->source.released == 1, "once");
  Check(world.calls->releases == 0 && !ends.client->HasUnsentMessages(), "by messages");

  // A ring that is full when its link ends: what was never sent goes another way, too.
  const Ends other = world.Connect();
  all.clear();
  for (int i = 0; i < 400; ++i) {
    all.push_back(std::make_unique<Running>(&world, 64, i));
    all.back()->Start();
    CheckOk(all.back()->outcome->Wait());
  }
  world.Disconnect(ends);
  Eventually("all are let go", [&] {
    world.Pump();
    return world.server->Count().offers_open == 0;
  });
  for (const auto& one : all) Check(*one->source.released == 1, "once");
}

bool Readable(int fd) {
  pollfd one = {fd, POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

// What one thread reads before it sleeps is released together, and the sender is woken once.
void ReleasesOfATurn() {
  World world(World::Loopback());
  const Ends ends = world.Connect();
  fabric::Connection* const sender = ends.server->connection();
  std::vector<std::unique_ptr<Running>> all;
  const auto transfer = [&](uint64_t size) {
    all.push_back(std::make_unique<Running>(&world, size, all.size()));
    all.back()->Start();
    CheckOk(all.back()->outcome->Wait());
    Check(all.back()->Right(all.size() - 1), "the bytes");
  };
  const auto released = [&] {
    world.Pump();
    int count = 0;
    for (const auto& one : all) count += *one->source.released;
    all.clear();
    return count;
  };
  Check(Value(sender->ArmRead()), "the sender sleeps");
  {
    ReleaseBatch batch;
    for (int i = 0; i < 3; ++i) transfer(5000);
    Check(!Readable(sender->wake_fd()) && ends.client->HasUnsentMessages(), "they wait");
    Check(*all[0]->source.released == 0, "held meanwhile");
    ReleaseBatch::PostAll();
    Check(Readable(sender->wake_fd()), "woken");
    sender->ClearWake();
    Check(released() == 3 && !Readable(sender->wake_fd()), "once, for all of them");

    // Those that hold much are not kept waiting.
    constexpr uint64_t kSize = 50000;
    for (uint64_t bytes = kSize; bytes < ReleaseBatch::kMostBytes; bytes += kSize) transfer(kSize);
    Check(ends.client->HasUnsentMessages(), "they wait");
    transfer(kSize);
    Check(!ends.client->HasUnsentMessages(), "posted");
    Check(released() == 1 + static_cast<int>(ReleaseBatch::kMostBytes / kSize), "all");

    // Nor are another thread's.
    std::thread other([&] { transfer(5000); });
    other.join();
    Check(!ends.client->HasUnsentMessages() && released() == 1, "at once");

    // Nor are those that a sender waits for, and what is posted takes the others with it.
    transfer(5000);
    Check(ends.client->HasUnsentMessages(), "it waits");
    Running waited_for(&world, 5000, 9, /*in_segment=*/true, /*sender_waits=*/true);
    waited_for.Start();
    CheckOk(waited_for.outcome->Wait());
    Check(released() == 1 && *waited_for.source.released == 1, "both");

    transfer(5000);
    Check(ends.client->HasUnsentMessages(), "it waits");
  }
  Check(!ends.client->HasUnsentMessages() && released() == 1, "with the batch's end");

  // The link ends before they are told: the next one tells of them.
  ReleaseBatch batch;
  const Ends second = world.Connect();
  for (int i = 0; i < 3; ++i) transfer(5000);
  world.Disconnect(ends);
  Check(released() == 3, "over the other link");
  ReleaseBatch::PostAll();
  transfer(5000);
  second.client->Close();
  ReleaseBatch::PostAll();
  world.Disconnect(second);
  Check(*all[0]->source.released == 1, "with the last link");
}

// A peer that reads no message does not fill this process's memory.
void APeerThatReadsNoMessage() {
  World world(World::Loopback(), 1 << 20);
  const Ends ends = world.Connect();
  size_t posted = 0;
  while (ends.client->PostRelease(posted)) ++posted;
  Check(posted >= Link::kMostUnsent && posted < Link::kMostUnsent + 1000, "bounded");
  Check(!ends.client->closed(), "the link is as it was");
}

void AnOfferAfterItsRelease() {
  World world(World::Loopback());
  world.Connect();
  const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
  receiver->GiveUp();
  Check(world.calls->releases == 1, "by a call, as the sender is not known yet");
  for (int i = 0; i < 2; ++i) {
    Source source = world.MakeSource(5000, 1, true);
    Check(!world.MakeSender().TryOffer(receiver->ask(), source.buffer, source.OnReleased()),
          "not held");
    Check(*source.released == 0, "and answered with the bytes");
  }
}

// Tickets cannot be guessed: they have 64 random bits.
void TicketsAreRandom() {
  World world(World::Loopback(), 1 << 20);
  uint64_t ones = 0;
  uint64_t zeros = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t ticket = world.MakeReceiver()->ask().ticket;
    ones |= ticket;
    zeros |= ~ticket;
  }
  Check(ones == UINT64_MAX && zeros == UINT64_MAX, "every bit changes");
}

}  // namespace

int main() {
  fabric::testing::RunAll("release",
                          {
                              {"a link closes amid the read", ALinkThatClosesAmidTheRead},
                              {"the last link closes", TheLastLinkClosesAmidTheRead},
                              {"with the last link", WhatIsHeldGoesWithTheLastLink},
                              {"a link that has gone", AnOfferOfALinkThatHasGone},
                              {"its link has ended", AReleaseWhoseLinkHasEnded},
                              {"lost with its link", AReleaseThatIsLostWithItsLink},
                              {"a call that is lost", AReleaseWhoseCallIsLost},
                              {"a full ring", ReleasesOverAFullRing},
                              {"of a turn", ReleasesOfATurn},
                              {"no message is read", APeerThatReadsNoMessage},
                              {"a late offer", AnOfferAfterItsRelease},
                              {"random tickets", TicketsAreRandom},
                          });
  return 0;
}
