// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A transfer that is cancelled: at every point of it, and many of them at the same time.

#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "tests/units/transfer_testing.h"

namespace {

using namespace ar_grpc;                     // NOLINT
using namespace ar_grpc::protocol;           // NOLINT
using namespace ar_grpc::protocol::testing;  // NOLINT

// So many that the pool copies.
constexpr uint64_t kBytes = uint64_t{6} << 20;

fabric::hostile::Options NeverFails() {
  fabric::hostile::Options options;
  options.failing_percent = 0;
  return options;
}

void ExpectLetGo(World* world, const Source& source) {
  Eventually("the source is let go", [&] {
    world->Pump();
    return *source.released == 1 && source.alive.expired();
  });
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

// After Cancel, or once the owner has closed the gate that he gave, the memory is his: what he
// writes there stays, whatever is under way. Under the thread sanitizer a write beside his is a
// race.
void AmidTheRead(const World::MakeContext& make, bool cut_link) {
  Pool pool(3);
  const RunInPool in_pool = [&pool](std::function<void()> task) {
    pool.Run(std::move(task));
    return true;
  };
  World world(make, size_t{1} << 31);
  Ends ends = world.Connect();
  world.ConnectTcp();
  int cancelled = 0;
  for (int round = 0; round < std::max(8, 24 / kSlowdown); ++round) {
    const auto gate = round % 2 == 0 ? std::make_shared<WriteGate>() : nullptr;
    const std::shared_ptr<Receiver> receiver = world.MakeReceiver(in_pool, gate);
    Source source = world.MakeSource(kBytes, round, true);
    const auto offer =
        world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer), source.OnReleased());
    Destination to(kBytes, false);
    const auto outcome = std::make_shared<Outcome>();
    // Now and then no thread is free before the cancel.
    const auto busy = std::make_shared<std::atomic<bool>>(round % 3 == 0);
    for (int i = 0; i < 3; ++i) {
      pool.Run([busy] {
        while (*busy) std::this_thread::yield();
      });
    }
    receiver->Start(*offer, to.target, outcome->Done(outcome));
    std::this_thread::sleep_for(std::chrono::microseconds(round * 60 * (kSlowdown > 1 ? 4 : 1)));
    if (cut_link && round % 4 == 0) {
      world.Disconnect(ends, round % 8 == 0);
      ends = world.Connect();
    }
    if (gate != nullptr) {
      gate->Close();
    } else {
      receiver->Cancel();
    }
    std::fill(to.bytes->begin(), to.bytes->end(), 0x11);
    *busy = false;
    const Status status = outcome->Wait();
    if (!status.ok()) {
      CheckCode(status, StatusCode::kCancelled);
      ++cancelled;
    }
    Check(std::count(to.bytes->begin(), to.bytes->end(), 0x11) == static_cast<long>(kBytes),
          "what the owner wrote stays");
    ExpectLetGo(&world, source);
  }
  Check(cancelled > 0, "some were cancelled");
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

// 100 transfers from 4 threads, some of them cancelled, while links come and go.
void ManyAtOnce(const World::MakeContext& make) {
  Pool pool(3);
  const RunInPool in_pool = [&pool](std::function<void()> task) {
    pool.Run(std::move(task));
    return true;
  };
  World world(make, size_t{1} << 30);
  world.ConnectTcp();
  Ends ends = world.Connect();
  world.Connect();
  world.KeepPumping();
  std::atomic<int> fine{0};
  std::atomic<int> stopped{0};
  std::atomic<bool> over{false};
  std::thread links([&] {
    while (!over) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      world.Disconnect(ends, over);
      ends = world.Connect();
    }
  });
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::mt19937 random(thread);
      for (int i = 0; i < 25; ++i) {
        const uint64_t size = 1 + random() % (i % 5 == 0 ? 5 << 20 : 600000);
        const uint64_t seed = thread * 1000 + i;
        const std::shared_ptr<Receiver> receiver =
            world.MakeReceiver(random() % 2 ? in_pool : RunInPool());
        Source source = world.MakeSource(size, seed, random() % 2);
        const auto offer = world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer),
                                                       source.OnReleased());
        Check(offer.has_value(), "an offer");
        const bool cancels = random() % 3 == 0;
        Destination to(size, !cancels && random() % 2);
        const auto outcome = std::make_shared<Outcome>();
        receiver->Start(*offer, to.target, outcome->Done(outcome));
        if (cancels) {
          if (random() % 2) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
          receiver->Cancel();
          std::fill(to.bytes->begin(), to.bytes->end(), 0x11);
        }
        const Status status = outcome->Wait();
        if (cancels) {
          Check(std::count(to.bytes->begin(), to.bytes->end(), 0x11) == static_cast<long>(size),
                "what the owner wrote stays");
        }
        if (status.ok()) {
          if (!cancels) Check(HasPattern(to.bytes->data(), size, seed), "the right bytes");
          ++fine;
        } else {
          Check(cancels, "what nobody cancels arrives: " + status.message());
          CheckCode(status, StatusCode::kCancelled);
          ++stopped;
        }
        Eventually("the source is let go",
                   [&] { return *source.released == 1 && source.alive.expired(); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  links.join();
  Check(fine + stopped == 100 && fine > 0, "all have ended");
}

}  // namespace

int main() {
  fabric::hostile::Options closing;
  closing.failing_percent = 3;
  closing.failure_closes = true;
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
          {"many at once, failures close", [=] { ManyAtOnce(World::Hostile(closing)); }},
      });
  return 0;
}
