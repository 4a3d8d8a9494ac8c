// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The layer base: threads and the reactor, wake pipes, random bits. Exits 0 when all of it holds.

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/common/refuse_threads.h"
#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/base/work_queue.h"

namespace ar_grpc::fabric::testing {
namespace {

using std::chrono::milliseconds;

// First of all, while there is no reactor yet.
void WithoutAThreadTheReactorIsAStatus() {
  refuse_threads = true;
  const UniqueFd fd = Value(NewWakeFd());
  bool ran = false;
  const auto task = [&ran] { ran = true; };
  CheckCode(Reactor::Get().Add(fd.get(), task), StatusCode::kResourceExhausted, "ulimit -u");
  Check(Reactor::Get().RunAfter(0, task) == 0, "no timer");
  CheckCode(StartOnReactor(task), StatusCode::kResourceExhausted);
  Check(!ran, "refused");
  Reactor::Get().Remove(fd.get());
  RunOnReactor(task);
  Check(ran, "nothing runs beside it");
  refuse_threads = false;
  std::promise<void> later;
  CheckOk(StartOnReactor([&later] { later.set_value(); }));
  later.get_future().wait();
}

void ATaskWaitsForAThread() {
  static auto* const queue = new WorkQueue("test", /*most_threads=*/2);
  refuse_threads = true;
  std::atomic<int> ran{0};
  for (int i = 0; i < 10; ++i) queue->Run([&ran] { ++ran; });
  std::this_thread::sleep_for(milliseconds(250));  // some tries
  Check(ran == 0, "no thread");
  refuse_threads = false;
  Eventually("each has run", [&ran] { return ran == 10; });
}

void AQueueHasAsManyThreadsAsAllowed() {
  static auto* const queue = new WorkQueue("test", /*most_threads=*/2);
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  std::atomic<int> ended{0};
  for (int i = 0; i < 5; ++i) {
    queue->Run([&running, &most, &ended, released] {
      const int now = ++running;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) continue;
      released.wait();
      // A third thread would find two here, however late it began.
      std::this_thread::sleep_for(milliseconds(20));
      --running;
      ++ended;
    });
  }
  Eventually("two at once", [&running] { return running == 2; });
  release.set_value();
  Eventually("each has run", [&ended] { return ended == 5; });
  Check(most == 2, "and no third");
}

void TimersRunInOrderAndNotEarly() {
  Reactor& reactor = Reactor::Get();
  while (true) {
    std::vector<int> order;  // touched on the reactor's thread only
    std::promise<void> done;
    const auto ran = [&](int which) {
      order.push_back(which);
      if (order.size() == 3) done.set_value();
    };
    const auto start = std::chrono::steady_clock::now();
    reactor.RunAfter(800, [&] { ran(3); });
    reactor.RunAfter(400, [&] { ran(2); });
    reactor.RunAfter(0, [&] { ran(1); });
    const auto took = std::chrono::steady_clock::now() - start;
    done.get_future().wait();
    Check(std::chrono::steady_clock::now() - start >= milliseconds(800), "not before its time");
    // Else a busy machine has put these lines so far apart that their order is another.
    if (took >= milliseconds(400)) continue;
    RunOnReactor([&] { Check(order == std::vector<int>{1, 2, 3}, "in the order of their times"); });
    return;
  }
}

void ACancelledTaskDoesNotRun() {
  Reactor& reactor = Reactor::Get();
  // On its own thread no timer can run between the two.
  RunOnReactor([&] {
    const uint64_t id = reactor.RunAfter(300, [] { Check(false, "cancelled"); });
    Check(id != 0 && reactor.Cancel(id), "cancelled in time");
    Check(!reactor.Cancel(id), "only once");
  });
  std::promise<uint64_t> ran;
  const uint64_t late = reactor.RunAfter(350, [&] { ran.set_value(0); });
  ran.get_future().wait();
  Check(!reactor.Cancel(late), "it ran");
}

void ATimerThatIsCancelledInTimeWakesNoOne() {
  Reactor& reactor = Reactor::Get();
  const auto rounds = [&reactor] {
    // It sleeps until then when that is cancelled: each timer below is for later.
    const uint64_t until = reactor.RunAfter(50000, [] {});
    RunOnReactor([] {});
    std::this_thread::sleep_for(milliseconds(50));
    Check(reactor.Cancel(until), "cancelled in time");
    const uint64_t before = reactor.rounds();
    constexpr int kTimers = 100;
    for (int i = 0; i < kTimers; ++i) {
      const uint64_t id = reactor.RunAfter(60000, [] { Check(false, "cancelled"); });
      Check(reactor.Cancel(id), "cancelled in time");
      // Time to come back from waiting, if it was woken.
      std::this_thread::sleep_for(milliseconds(1));
    }
    return reactor.rounds() - before;
  };
  uint64_t least = rounds();
  // One more round may have been under way; and on a busy machine the reactor may not have come to
  // its sleep when the first timer was cancelled, and then each one wakes it.
  for (int i = 0; i < 9 && least > 1; ++i) least = std::min(least, rounds());
  Check(least <= 1, "the reactor slept on");
  std::promise<void> ran;
  reactor.RunAfter(10, [&] { ran.set_value(); });
  Check(ran.get_future().wait_for(milliseconds(5000)) == std::future_status::ready,
        "a sooner one still wakes it");
}

void RemoveWaitsForTheCallback() {
  const UniqueFd fd = Value(NewWakeFd());
  for (int round = 0; round < 200 / kSlowdown; ++round) {
    std::atomic<bool> removed{false};
    std::atomic<int> calls{0};
    CheckOk(Reactor::Get().Add(fd.get(), [&] {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      Check(!removed, "ran after Remove");
      ++calls;
    }));
    WakeUp(fd.get());
    while (round % 2 == 0 && calls == 0) std::this_thread::yield();
    Reactor::Get().Remove(fd.get());
    removed = true;
    ClearWakeUp(fd.get());
  }
}

void ACallbackMayRemoveItself() {
  const UniqueFd fd = Value(NewWakeFd());
  const auto alive = std::make_shared<int>(0);
  std::promise<void> called;
  CheckOk(Reactor::Get().Add(fd.get(), [&, alive] {
    Reactor::Get().Remove(fd.get());
    called.set_value();
  }));
  WakeUp(fd.get());
  called.get_future().wait();
  RunOnReactor([] {});
  Check(alive.use_count() == 1, "the callback is destroyed");
  CheckOk(Reactor::Get().Add(fd.get(), [] {}));
  Reactor::Get().Remove(fd.get());
  Reactor::Get().Remove(fd.get());
}

void AddRefusesWhatCannotBeWatched() {
  Check(!Reactor::Get().Add(-1, [] {}).ok(), "no descriptor");
}

// ThreadSanitizer ends a child that starts threads after a fork of a threaded process.
void AForkedChildGetsItsOwnReactor() {
#if !defined(__SANITIZE_THREAD__)
  RunOnReactor([] {});
  Check(ForkCount() == 0, "the first process");
  const pid_t child = fork();
  if (child == 0) {
    std::promise<void> ran;
    Reactor::Get().RunAfter(5, [&] { ran.set_value(); });
    const auto in_time = ran.get_future().wait_for(milliseconds(kTimeoutMs));
    _exit(in_time == std::future_status::ready && ForkCount() == 1 ? 0 : 1);
  }
  int status = 1;
  Check(waitpid(child, &status, 0) == child && status == 0, "the child's reactor runs");
  Check(ForkCount() == 0, "the parent counts none");
  std::promise<void> ran;
  Reactor::Get().RunAfter(1, [&] { ran.set_value(); });
  Check(ran.get_future().wait_for(milliseconds(kTimeoutMs)) == std::future_status::ready,
        "the parent's goes on");
#endif
}

void ATcpConnectionSaysHowLongItWasIdle() {
  using std::chrono::milliseconds;
  const LoopbackTcp tcp;
  Check(write(tcp.client.get(), "x", 1) == 1, "written");
  std::this_thread::sleep_for(milliseconds(1000));
  const auto idle = SinceLastData(tcp.server.get());
  // The kernel counts in ticks of 10 ms at most.
  Check(idle && *idle >= milliseconds(980), "nothing came for a second");
  const auto before = std::chrono::steady_clock::now();
  Check(write(tcp.client.get(), "x", 1) == 1, "written");
  const auto fresh = SinceLastData(tcp.server.get());
  const auto since = std::chrono::steady_clock::now() - before;
  Check(fresh && *fresh <= since + milliseconds(20), "something came");
  int pair[2];
  Check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0, "socketpair");
  const UniqueFd one(pair[0]);
  const UniqueFd two(pair[1]);
  Check(!SinceLastData(one.get()) && !SinceLastData(-1), "of TCP alone");
  Check(!QuickestRoundTrip(one.get()) && !QuickestRoundTrip(-1), "of TCP alone");
}

// The kernels' own, however long the other end lets the bytes lie.
void ATcpConnectionSaysHowFarTheOtherIs() {
  const LoopbackTcp tcp;
  Check(write(tcp.client.get(), "x", 1) == 1, "written");
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  char byte = 0;
  Check(read(tcp.server.get(), &byte, 1) == 1 && write(tcp.server.get(), "y", 1) == 1, "answered");
  for (const int end : {tcp.client.get(), tcp.server.get()}) {
    const auto quickest = QuickestRoundTrip(end);
    Check(quickest && quickest->count() >= 1 && quickest->count() < 400000, "within this host");
  }
}

void TokensDiffer() {
  Check(NewToken() != NewToken(), "random");
  Check(RandomHex().size() == 32 && RandomHex() != RandomHex(), "random");
}

void RandomBitsNeedNoDescriptor() {
  rlimit before = {};
  Check(getrlimit(RLIMIT_NOFILE, &before) == 0, "getrlimit");
  const rlimit none = {0, before.rlim_max};
  Check(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
  const bool differ = RandomSeed() != RandomSeed() && NewToken() != NewToken();
  Check(setrlimit(RLIMIT_NOFILE, &before) == 0, "setrlimit");
  Check(differ, "random");
}

}  // namespace
}  // namespace ar_grpc::fabric::testing

int main() {
  using namespace ar_grpc::fabric::testing;
  const std::vector<Case> cases = {
      {"without a thread the reactor is a status", WithoutAThreadTheReactorIsAStatus},
      {"a task waits for a thread", ATaskWaitsForAThread},
      {"a queue has as many threads as allowed", AQueueHasAsManyThreadsAsAllowed},
      {"timers run in order and not early", TimersRunInOrderAndNotEarly},
      {"a cancelled task does not run", ACancelledTaskDoesNotRun},
      {"a timer cancelled in time wakes no one", ATimerThatIsCancelledInTimeWakesNoOne},
      {"remove waits for the callback", RemoveWaitsForTheCallback},
      {"a callback may remove itself", ACallbackMayRemoveItself},
      {"add refuses what cannot be watched", AddRefusesWhatCannotBeWatched},
      {"a forked child gets its own reactor", AForkedChildGetsItsOwnReactor},
      {"a tcp connection says how long it was idle", ATcpConnectionSaysHowLongItWasIdle},
      {"a tcp connection says how far the other is", ATcpConnectionSaysHowFarTheOtherIs},
      {"tokens differ", TokensDiffer},
      {"random bits need no descriptor", RandomBitsNeedNoDescriptor},
  };
  RunAll("base", cases);
  std::printf("%zu cases over base\n", cases.size());
  return 0;
}
