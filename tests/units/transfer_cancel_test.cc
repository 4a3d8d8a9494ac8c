// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A transfer that is cancelled: at every point of it, and many of them at the same time.

#include <algorithm>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/units/transfer_scenarios.h"
#include "tests/units/transfer_testing.h"
#include "third_party/ar_grpc/fabric/shm/shm.h"

namespace {

using namespace ar_grpc;                     // NOLINT
using namespace ar_grpc::protocol;           // NOLINT
using namespace ar_grpc::protocol::testing;  // NOLINT

fabric::hostile::Options NeverFails() {
  fabric::hostile::Options options;
  options.failing_percent = 0;
  return options;
}

void BeforeTheOffer() {
  World world(World::Loopback());
  world.Connect();
  const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
  receiver->Cancel();
  Source source = world.MakeSource(5000, 1, true);
  const auto offer =
      world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer), source.OnReleased());
  Destination to(5000, false);
  const auto outcome = std::make_shared<Outcome>();
  receiver->Start(*offer, to.target, outcome->Done(outcome));
  Check(outcome->Ended(), "at once");
  CheckCode(outcome->Wait(), StatusCode::kCancelled);
  Check(std::count(to.bytes->begin(), to.bytes->end(), 0xEE) == 5000, "nothing was written");
  ExpectLetGo(&world, source);
}

void AfterTheEnd() {
  World world(World::Loopback());
  world.Connect();
  const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
  Source source = world.MakeSource(5000, 1, true);
  const auto offer =
      world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer), source.OnReleased());
  Destination to(5000, false);
  const auto outcome = std::make_shared<Outcome>();
  receiver->Start(*offer, to.target, outcome->Done(outcome));
  CheckOk(outcome->Wait());
  receiver->Cancel();
  receiver->Cancel();
  ExpectLetGo(&world, source);
}

void AmidTheChunks() {
  World world(World::Loopback());
  world.ConnectTcp();
  for (const bool kept : {false, true}) {
    const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
    Source source = world.MakeSource(kBytes, 1, true);
    const auto offer =
        world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer), source.OnReleased());
    Destination to(kBytes, kept);
    const auto outcome = std::make_shared<Outcome>();
    world.calls->hold = true;
    world.calls->started = 0;
    receiver->Start(*offer, to.target, outcome->Done(outcome));
    Check(world.calls->started == 4 && !outcome->Ended(), "four calls wait");
    receiver->Cancel();
    CheckCode(outcome->Wait(), StatusCode::kCancelled);
    Check(world.calls->started == 4, "no further call");
    Check(std::count(to.bytes->begin(), to.bytes->end(), 0xEE) == static_cast<long>(kBytes),
          "nothing was written");
    ExpectLetGo(&world, source);
    world.calls->hold = false;
  }
}

// A call may be on its way to the wire when the cancel comes.
void WhileACallBegins() {
  for (int round = 0; round < 300 / kSlowdown; ++round) {
    World world(World::Loopback(), 1 << 20);
    world.ConnectTcp();
    world.calls->hold = true;
    const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
    Source source = world.MakeSource(10000, 1, true);
    const auto offer =
        world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer), source.OnReleased());
    Destination to(10000, false);
    const auto outcome = std::make_shared<Outcome>();
    std::thread canceller([&] { receiver->Cancel(); });
    receiver->Start(*offer, to.target, outcome->Done(outcome));
    canceller.join();
    CheckCode(outcome->Wait(), StatusCode::kCancelled);
    ExpectLetGo(&world, source);
  }
}

}  // namespace

int main() {
  fabric::hostile::Options closing;
  closing.failing_percent = 3;
  closing.failure_closes = true;
  const World::MakeContext over_shm = World::Borrow(&fabric::shm::Get());
  fabric::testing::RunAll(
      "cancel",
      {
          {"before the offer", BeforeTheOffer},
          {"after the end", AfterTheEnd},
          {"amid the read", [] { AmidTheRead(World::Loopback(), false); }},
          {"amid the read, late", [] { AmidTheRead(World::Hostile(NeverFails()), false); }},
          {"amid the read, links go", [] { AmidTheRead(World::Loopback(), true); }},
          {"amid the read, late, links go", [] { AmidTheRead(World::Hostile(), true); }},
          {"amid the chunks", AmidTheChunks},
          {"while a call begins", WhileACallBegins},
          {"many at once", [] { ManyAtOnce(World::Loopback()); }},
          {"many at once, late", [] { ManyAtOnce(World::Hostile()); }},
          {"amid the read, shm", [=] { AmidTheRead(over_shm, false); }},
          {"amid the read, links go, shm", [=] { AmidTheRead(over_shm, true); }},
          {"many at once, shm", [=] { ManyAtOnce(over_shm); }},
          {"many at once, failures close", [=] { ManyAtOnce(World::Hostile(closing)); }},
      });
  return 0;
}
