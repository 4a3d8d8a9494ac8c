// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Which cleanups travel with a request and which go alone: none is lost, whatever the peer knows.

#include "third_party/ar_grpc/protocol/step_cleanups.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "tests/units/expect.h"

namespace {

using ar_grpc::protocol::StepCleanups;
using Ids = std::vector<int64_t>;

constexpr auto kLong = std::chrono::seconds(20);

// What was sent alone, in order, and the tasks of timers, which run when they are told to.
class Peer {
 public:
  StepCleanups::SendAlone send_alone() {
    return [state = state_](int64_t id) {
      std::lock_guard<std::mutex> lock(state->mu);
      state->alone.push_back(id);
    };
  }
  StepCleanups::RunSoon run_soon() {
    return [state = state_](std::function<void()> task) {
      std::lock_guard<std::mutex> lock(state->mu);
      state->tasks.push_back(std::move(task));
      state->filled.notify_all();
    };
  }

  Ids alone() {
    std::lock_guard<std::mutex> lock(state_->mu);
    return state_->alone;
  }

  // Runs the task of the next timer that is over.
  void RunTask() {
    std::unique_lock<std::mutex> lock(state_->mu);
    EXPECT(state_->filled.wait_for(lock, kLong, [this] { return !state_->tasks.empty(); }));
    if (state_->tasks.empty()) return;
    const std::function<void()> task = std::move(state_->tasks.front());
    state_->tasks.pop_front();
    lock.unlock();
    task();
  }

 private:
  struct State {
    std::mutex mu;
    std::condition_variable filled;
    Ids alone;
    std::deque<std::function<void()>> tasks;
  };
  // Shared with timers, which may be over after the test.
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

void APeerThatDoesNotSayThatItUnderstandsGetsCalls() {
  Peer peer;
  StepCleanups cleanups(peer.send_alone(), peer.run_soon());
  EXPECT(!cleanups.Keep(1));
  EXPECT(cleanups.Take().empty());
  cleanups.Answered({}, /*understood=*/false);
  EXPECT(!cleanups.Keep(2));
  EXPECT(peer.alone().empty());  // the caller sends what is not kept
}

void TheNextRequestTakesThemAlong() {
  Peer peer;
  StepCleanups cleanups(peer.send_alone(), peer.run_soon());
  cleanups.Answered(cleanups.Take(), /*understood=*/true);
  EXPECT(cleanups.Keep(1) && cleanups.Keep(2));
  const Ids taken = cleanups.Take();
  EXPECT((taken == Ids{1, 2}));
  EXPECT(cleanups.Keep(3));
  cleanups.Answered(taken, /*understood=*/true);
  peer.RunTask();  // only what no request took
  EXPECT((peer.alone() == Ids{3}));
  EXPECT(cleanups.Take().empty());
}

void WhatNoRequestTakesIsSentInTime() {
  Peer peer;
  StepCleanups cleanups(peer.send_alone(), peer.run_soon());
  cleanups.Answered({}, /*understood=*/true);
  // Each time anew, though there is one timer at a time.
  for (int64_t id = 1; id <= 3; ++id) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT(cleanups.Keep(id));
    peer.RunTask();
    EXPECT(std::chrono::steady_clock::now() - start >=
           std::chrono::milliseconds(StepCleanups::kPatienceMs));
    EXPECT(static_cast<int64_t>(peer.alone().size()) == id);
  }
  EXPECT((peer.alone() == Ids{1, 2, 3}));
}

void WhatARequestTookAndMayNotHaveBroughtIsSent() {
  Peer peer;
  StepCleanups cleanups(peer.send_alone(), peer.run_soon());
  cleanups.Answered({}, /*understood=*/true);
  EXPECT(cleanups.Keep(1) && cleanups.Keep(2));
  cleanups.Answered(cleanups.Take(), /*understood=*/false);
  EXPECT((peer.alone() == Ids{1, 2}));
  // Until the peer says it again.
  EXPECT(!cleanups.Keep(3));
  cleanups.Answered(cleanups.Take(), /*understood=*/true);
  EXPECT(cleanups.Keep(4));
  EXPECT((cleanups.Take() == Ids{4}));
}

void StepsWhoseIdsComeAgainAreNotKept() {
  Peer peer;
  StepCleanups cleanups(peer.send_alone(), peer.run_soon());
  cleanups.Answered({}, /*understood=*/true);
  EXPECT(cleanups.Keep(1));
  cleanups.KeepNoMore();
  EXPECT(!cleanups.Keep(2));
  EXPECT((cleanups.Take() == Ids{1}));
  cleanups.Answered({1}, /*understood=*/true);
  EXPECT(!cleanups.Keep(3));
}

void AFlushSendsWhatIsKept() {
  Peer peer;
  StepCleanups cleanups(peer.send_alone(), peer.run_soon());
  cleanups.Answered({}, /*understood=*/true);
  EXPECT(cleanups.Keep(1) && cleanups.Keep(2));
  cleanups.Flush();
  EXPECT((peer.alone() == Ids{1, 2}));
  EXPECT(cleanups.Take().empty());
  EXPECT(cleanups.Keep(3));
  EXPECT((cleanups.Take() == Ids{3}));
}

void TheEndSendsWhatIsKept() {
  Peer peer;
  {
    StepCleanups cleanups(peer.send_alone(), peer.run_soon());
    cleanups.Answered({}, /*understood=*/true);
    EXPECT(cleanups.Keep(1));
  }
  EXPECT((peer.alone() == Ids{1}));
  peer.RunTask();  // of nothing
  EXPECT((peer.alone() == Ids{1}));
}

void EachGoesOnceOnly() {
  constexpr int kThreads = 4;
  constexpr int64_t kEach = 2000;
  Peer peer;
  std::mutex mu;
  Ids arrived;
  std::optional<StepCleanups> cleanups;
  std::atomic<bool> over{false};
  std::thread timers([&] {
    while (!over) {
      std::this_thread::sleep_for(std::chrono::milliseconds(StepCleanups::kPatienceMs));
      peer.RunTask();
    }
  });
  cleanups.emplace(peer.send_alone(), peer.run_soon());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (int64_t i = 0; i < kEach; ++i) {
        const int64_t id = thread * kEach + i;
        // By a call of its own.
        if (!cleanups->Keep(id)) peer.send_alone()(id);
        const Ids taken = cleanups->Take();
        // Some requests are lost, and some are answered by a peer that does not understand.
        const bool understood = i % 7 != 0;
        if (understood) {
          std::lock_guard<std::mutex> lock(mu);
          arrived.insert(arrived.end(), taken.begin(), taken.end());
        }
        cleanups->Answered(taken, understood);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // A timer is over once more, for who waits for it.
  cleanups->Answered({}, /*understood=*/true);
  over = true;
  EXPECT(cleanups->Keep(kThreads * kEach));
  timers.join();
  cleanups.reset();
  for (const int64_t id : peer.alone()) arrived.push_back(id);
  std::vector<int> times(kThreads * kEach + 1);
  for (const int64_t id : arrived) ++times[id];
  int once = 0;
  for (const int count : times) once += count == 1 ? 1 : 0;
  EXPECT(once == kThreads * kEach + 1);
}

}  // namespace

int main() {
  APeerThatDoesNotSayThatItUnderstandsGetsCalls();
  TheNextRequestTakesThemAlong();
  WhatNoRequestTakesIsSentInTime();
  WhatARequestTookAndMayNotHaveBroughtIsSent();
  StepsWhoseIdsComeAgainAreNotKept();
  AFlushSendsWhatIsKept();
  TheEndSendsWhatIsKept();
  EachGoesOnceOnly();
  return failures == 0 ? 0 : 1;
}
