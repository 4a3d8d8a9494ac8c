// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/units/transfer_scenarios.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace ar_grpc::protocol::testing {
namespace {

RunInPool InPool(Pool* pool) {
  return [pool](std::function<void()> task) {
    pool->Run(std::move(task));
    return true;
  };
}

}  // namespace

Status Move(World* world, uint64_t size, uint64_t seed, bool in_segment, bool kept,
            RunInPool run_in_pool) {
  Source source = world->MakeSource(size, seed, in_segment);
  const std::shared_ptr<Receiver> receiver = world->MakeReceiver(std::move(run_in_pool));
  const std::optional<Offer> offer =
      world->MakeSender().TryOffer(receiver->ask(), std::move(source.buffer), source.OnReleased());
  Check(offer.has_value(), "an offer");
  Destination to(size, kept);
  const auto outcome = std::make_shared<Outcome>();
  receiver->Start(*offer, to.target, outcome->Done(outcome));
  const Status status = outcome->Wait();
  if (status.ok()) Check(HasPattern(to.bytes->data(), size, seed), "the right bytes");
  ExpectLetGo(world, source);
  return status;
}

Ended RightBytesInAllWays(const World::MakeContext& make) {
  Pool pool(4);
  World world(make, size_t{1} << 30);
  world.Connect();
  for (const uint64_t size : kSizes) {
    for (const int way : {0, 1, 2, 3, 4, 5, 6, 7}) {
      CheckOk(
          Move(&world, size, size + way, way & 1, way & 2, way & 4 ? InPool(&pool) : RunInPool()));
    }
  }
  return {world.client->Count(), world.server->Count()};
}

void AllByReads(const World::MakeContext& make) {
  const Ended ended = RightBytesInAllWays(make);
  Check(ended.received.rendezvous == 8 * std::size(kSizes) && ended.received.chunk_bytes == 0,
        "all went by reads");
  Check(ended.sent.staged_bytes * 2 == ended.received.rendezvous_bytes, "half were staged");
}

void ExpectLetGo(World* world, const Source& source) {
  Eventually("the source is let go", [&] {
    world->Pump();
    return *source.released == 1 && source.alive.expired();
  });
}

void AmidTheRead(const World::MakeContext& make, bool cut_link) {
  Pool pool(3);
  const RunInPool in_pool = InPool(&pool);
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

void ManyAtOnce(const World::MakeContext& make) {
  Pool pool(3);
  const RunInPool in_pool = InPool(&pool);
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

}  // namespace ar_grpc::protocol::testing
