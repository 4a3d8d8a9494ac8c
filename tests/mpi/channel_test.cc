// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The scenarios with a thread for each rank, over a fake MPI: for the sanitizers.

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <thread>

#include "tests/mpi/fake_calls.h"
#include "tests/mpi/scenarios.h"

namespace ar_grpc::mpi::testing {
namespace {

std::vector<std::unique_ptr<Channel>> StartAll(FakeJob& job, int ranks, Channel::Options options) {
  std::vector<std::unique_ptr<Channel>> channels(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back(
        [&, rank] { channels[rank] = Value(Channel::Start(options, job.LibraryOf(rank))); });
  }
  for (std::thread& thread : threads) thread.join();
  return channels;
}

void RunScenario(const Scenario& scenario) {
  FakeJob job(scenario.ranks);
  Channel::Options options;
  options.chunk_bytes = scenario.chunk_bytes;
  const auto channels = StartAll(job, scenario.ranks, options);
  // All draw their tags before one sends under them.
  std::deque<Rank> all;
  for (const auto& channel : channels) {
    Check(channel->job().token == channels[0]->job().token, "one token for all");
    all.emplace_back(*channel);
  }
  std::vector<std::thread> threads;
  for (Rank& rank : all) threads.emplace_back([&] { scenario.run(rank); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& channel : channels) channel->Stop();
  std::printf("ok fake: %s\n", scenario.name);
}

// What waits at the end, and what comes after it.
void Ends() {
  FakeJob job(2);
  Channel::Options options;
  options.most = 3;
  auto channels = StartAll(job, 2, options);
  Memory memory(1000);
  std::vector<Tag> tags;
  Ended ended[6];
  // One that comes before its receive, which never comes.
  const Tag unused = Value(channels[0]->Draw(1));
  Ended early;
  Memory out(1000);
  channels[1]->Send(0, unused.value(), out.data(), 1000, nullptr, early.done());
  Eventually("the early message is matched", [&] { return job.Matched(1) == 1; });
  for (int i = 0; i < 4; ++i) {
    tags.push_back(Value(channels[0]->Draw(1)));
    channels[0]->Receive(tags[i], memory.data(), 1000, i == 0 ? memory.keep() : nullptr,
                         ended[i].done());
  }
  CheckCode(ended[3].Wait(), StatusCode::kResourceExhausted, "too many MPI transfers at a time");
  channels[0]->Stop();
  for (int i = 0; i < 3; ++i) {
    CheckCode(ended[i].Wait(), StatusCode::kCancelled, "the MPI channel ends");
  }
  Check(memory.released(), "its memory is given back");
  CheckOk(early.Wait());
  channels[0]->Receive(tags[0], memory.data(), 1, nullptr, ended[4].done());
  CheckCode(ended[4].Wait(), StatusCode::kUnavailable, "the MPI channel has ended");
  channels[0]->Cancel(1);
  channels[0]->Lose(1);
  std::printf("ok fake: ends\n");
}

// What a call's answer announces: it is refused before that, or its loss is told after it.
void Announced() {
  FakeJob job(2);
  auto channels = StartAll(job, 2, {});
  Memory memory(1000);
  Ended arrives;
  Ended received;
  const Tag tag = Value(channels[1]->Draw(0));
  channels[1]->Receive(tag, memory.data(), 1000, nullptr, received.done());
  CheckOk(channels[0]->SendAnnounced(1, tag.value(), memory.data(), 1000, nullptr, arrives.done()));
  CheckOk(received.Wait());
  CheckOk(arrives.Wait());
  Ended refused;
  CheckCode(channels[0]->SendAnnounced(1, -1, memory.data(), 1000, nullptr, refused.done()),
            StatusCode::kInvalidArgument, "MPI has no tag -1 here, only up to ");
  // Matched at the other end and never received: then that rank is lost, or MPI ends here.
  const Tag unread = Value(channels[1]->Draw(0));
  Ended lost;
  CheckOk(channels[0]->SendAnnounced(1, unread.value(), memory.data(), 1000, nullptr, lost.done()));
  Eventually("the message is matched", [&] { return job.Matched(0) == 2; });
  channels[0]->Lose(1);
  CheckCode(lost.Wait(), StatusCode::kUnavailable,
            "what was sent to rank 1 of the MPI job is lost: rank 1 of the MPI job is lost");
  Ended ends;
  CheckOk(channels[1]->SendAnnounced(0, 1, memory.data(), 1000, nullptr, ends.done()));
  job.Finalize(1);
  CheckCode(ends.Wait(), StatusCode::kUnavailable,
            "what was sent to rank 0 of the MPI job is lost: the program has finalized its MPI");
  Check(!refused.Ready(0), "what was refused has no other end");
  for (const auto& channel : channels) channel->Stop();
  std::printf("ok fake: announced\n");
}

// MPI cannot look for messages: for a moment that is borne, for long it ends what waits for them.
void Failures() {
  FakeJob job(1);
  auto channel = Value(Channel::Start({}, job.LibraryOf(0)));
  Memory out(1000);
  Memory in(1000);
  const Tag tag = Value(channel->Draw(0));
  for (const bool for_long : {false, true}) {
    Ended received;
    job.FailProbes(0, true);
    channel->Receive(tag, in.data(), 1000, nullptr, received.done());
    const uint64_t turns = channel->counts().turns;
    Eventually("some failures", [&] { return channel->counts().turns > turns + 100; });
    if (for_long) {
      CheckCode(received.Wait(), StatusCode::kUnavailable, "MPI_Improbe: a failure");
      received = Ended();
    }
    job.FailProbes(0, false);
    if (for_long) channel->Receive(tag, in.data(), 1000, nullptr, received.done());
    Ended sent;
    channel->Send(0, tag.value(), out.data(), 1000, nullptr, sent.done());
    CheckOk(sent.Wait());
    CheckOk(received.Wait());
  }
  channel->Stop();
  std::printf("ok fake: failures\n");
}

// The program finalizes MPI, perhaps one that the channel has initialized: its thread calls it no
// more.
void Finalized(bool ours) {
  FakeJob job(1);
  auto channel =
      Value(Channel::Start({}, job.LibraryOf(0, {!ours, false, ThreadLevel::kMultiple})));
  Memory memory(1000);
  const Tag tag = Value(channel->Draw(0));
  Ended waits;
  channel->Receive(tag, memory.data(), 1000, memory.keep(), waits.done());
  job.Finalize(0);
  CheckCode(waits.Wait(), StatusCode::kUnavailable, "the program has finalized its MPI");
  Ended late;
  channel->Send(0, tag.value(), memory.data(), 1000, nullptr, late.done());
  CheckCode(late.Wait(), StatusCode::kUnavailable, "the program has finalized its MPI");
  channel->Stop();
  std::printf("ok fake: finalized%s\n", ours ? "-ours" : "");
}

// What is told of an end may wait for who finalizes MPI: here it does so itself.
void FinalizedAtAnEnd() {
  FakeJob job(1);
  auto channel = Value(Channel::Start({}, job.LibraryOf(0)));
  Memory memory(1000);
  const Tag tag = Value(channel->Draw(0));
  Ended waits;
  const Id id = channel->Receive(tag, memory.data(), 1000, memory.keep(),
                                 [&job, done = waits.done()](Status status) {
                                   job.Finalize(0);
                                   done(std::move(status));
                                 });
  channel->Cancel(id);
  CheckCode(waits.Wait(), StatusCode::kCancelled);
  Eventually("its memory is given back", [&] { return memory.released(); });
  channel->Stop();
  std::printf("ok fake: finalized-at-an-end\n");
}

// MPI that the channel has initialized ends with a program that ends well. One that has failed does
// not wait for what is on the way, either.
void Leaves() {
  FakeJob job(2);
  const Says ours = {false, false, ThreadLevel::kMultiple};
  auto well = Value(Channel::Start({}, job.LibraryOf(0, ours)));
  well->Stop();
  Check(job.Finalized(0), "MPI is finalized");
  auto failed = Value(Channel::Start({}, job.LibraryOf(0, ours)));
  Memory memory(1000);
  Ended ended;
  const Tag unread = Value(failed->Draw(0));
  failed->Send(0, unread.value(), memory.data(), 1000, memory.keep(), ended.done());
  Eventually("the message is matched", [&] { return job.Matched(0) == 1; });
  const auto start = std::chrono::steady_clock::now();
  failed->Leave();
  Check(std::chrono::steady_clock::now() - start < std::chrono::seconds(4), "it waits");
  CheckCode(ended.Wait(), StatusCode::kCancelled, "the MPI channel ends");
  Check(!memory.released(), "MPI may still read it");
  failed->Stop();
  Check(!job.Finalized(0), "MPI is left as it is");
  std::printf("ok fake: leaves\n");
}

// A forked child has the channel's memory and not its thread, and perhaps a locked mutex.
void Forked() {
  FakeJob job(1);
  auto channel = Value(Channel::Start({}, job.LibraryOf(0)));
  std::atomic<bool> over{false};
  std::thread draws([&] {
    while (!over) Value(channel->Draw(0));
  });
  for (int i = 0; i < 50; ++i) {
    Tag tag = Value(channel->Draw(0));
    const pid_t child = fork();
    if (child == 0) {
      // A wait for a mutex ends so, too.
      alarm(kTimeoutMs / 1000);
      CheckCode(channel->Draw(0).status(), StatusCode::kUnavailable,
                "this process is a fork of the MPI job's");
      tag = Tag();
      channel.reset();
      _exit(0);
    }
    int status = 0;
    Check(waitpid(child, &status, 0) == child && status == 0, "a child ends well");
  }
  over = true;
  draws.join();
  channel->Stop();
  std::printf("ok fake: forked\n");
}

// A rank that dies while a chunk is on the way: that memory is never given back.
void Death() {
  FakeJob job(3);
  Channel::Options options;
  options.chunk_bytes = 1000;
  auto channels = StartAll(job, 3, options);
  Memory out(5000);
  Memory in(5000);
  Memory never(5000);
  Ended ended[4];
  std::vector<Tag> tags;
  tags.push_back(Value(channels[0]->Draw(2)));
  tags.push_back(Value(channels[0]->Draw(2)));
  tags.push_back(Value(channels[0]->Draw(1)));
  job.Kill(2);
  channels[2]->Send(0, tags[0].value(), out.data(), 5000, nullptr, [](Status) {});
  channels[0]->Receive(tags[0], in.data(), 5000, in.keep(), ended[0].done());
  channels[0]->Receive(tags[1], never.data(), 5000, never.keep(), ended[1].done());
  Eventually("the first chunk is on the way", [&] { return job.Begun(2) == 1; });
  channels[0]->Lose(2);
  for (int i = 0; i < 2; ++i) {
    CheckCode(ended[i].Wait(), StatusCode::kUnavailable, "rank 2 of the MPI job is lost");
  }
  Eventually("what never came is given back", [&] { return never.released(); });
  Check(!in.released(), "MPI may still write it");
  Check(channels[0]->counts().kept == 1 && channels[0]->counts().kept_bytes == 5000, "is counted");
  // Others go on.
  Memory other(5000);
  channels[1]->Send(0, tags[2].value(), out.data(), 5000, nullptr, ended[2].done());
  channels[0]->Receive(tags[2], other.data(), 5000, nullptr, ended[3].done());
  CheckOk(ended[2].Wait());
  CheckOk(ended[3].Wait());
  channels[0]->Stop();
  Check(!in.released(), "MPI may write it until the process ends");
  std::printf("ok fake: death\n");
  std::fflush(stdout);
  // It holds memory for ever, which LeakSanitizer would tell.
  std::_Exit(0);
}

}  // namespace
}  // namespace ar_grpc::mpi::testing

int main() {
  // Where a channel initializes MPI itself, it asks for a launcher.
  setenv("PMIX_RANK", "0", 1);
  using namespace ar_grpc::mpi::testing;  // NOLINT
  for (const Scenario& scenario : Scenarios()) {
    // Nothing in it that the others have not, but bytes.
    if (std::string(scenario.name) != "large-sizes") RunScenario(scenario);
  }
  Ends();
  Announced();
  Failures();
  Finalized(false);
  Finalized(true);
  FinalizedAtAnEnd();
  Leaves();
  Forked();
  Death();
}
