// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// One rank of a job: runs a scenario over the MPI library that there is. Started by mpirun.

#include <dlfcn.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>

#include "tests/mpi/scenarios.h"

namespace ar_grpc::mpi::testing {
namespace {

double CpuSeconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

// The share of a core that this process takes in `seconds`, in percent.
double Percent(double seconds) {
  const double before = CpuSeconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return 100 * (CpuSeconds() - before) / seconds;
}

// The folder that the ranks share, or null.
const char* Folder() { return std::getenv("MPI_TEST_OUTPUT"); }

// Returns once all ranks have drawn their tags: what came before would be nobody's.
void AwaitDrawn(const Rank& rank) {
  if (Folder() == nullptr) return;
  const auto mark = [](int of) { return std::string(Folder()) + "/drawn-" + std::to_string(of); };
  std::fclose(std::fopen(mark(rank.rank()).c_str(), "w"));
  for (int other = 0; other < rank.size(); ++other) {
    Eventually("all ranks have drawn their tags",
               [&] { return access(mark(other).c_str(), F_OK) == 0; });
  }
}

// What it takes to have nothing on the way, and to wait for what does not come.
void Idle(Rank& rank) {
  rank.Meet();
  // The thread rests 0.1 s after the last word, and later where it does not get the processor.
  uint64_t turns = 0;
  Eventually("the thread comes to rest", [&] {
    turns = rank.channel().counts().turns;
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return rank.channel().counts().turns == turns;
  });
  const double idle = Percent(2);
  const uint64_t idle_turns = rank.channel().counts().turns - turns;
  if (rank.rank() == 0) {
    Ended ended;
    uint8_t byte = 0;
    Tag tag = rank.NextReceive(1);
    rank.channel().Receive(tag, &byte, 1, nullptr, ended.done());
    std::this_thread::sleep_for(std::chrono::milliseconds(4000));
    const double waiting = Percent(2);
    rank.Tell(1);
    CheckOk(ended.Wait());
    std::printf("waiting_percent %.3f\n", waiting);
    std::printf("idle_percent %.3f\nidle_turns %llu\n", idle,
                static_cast<unsigned long long>(idle_turns));
  } else {
    rank.Hear(0);
    rank.Tell(0);
  }
}

// Rank 2 dies with messages on the way. The others are told, as TCP would, and go on.
void Death(Rank& rank) {
  const int other = 1 - rank.rank();
  rank.Meet();
  if (rank.rank() == 2) {
    // In the midst of what it sends.
    Memory out(32 << 20);
    out.Fill(2);
    for (const int to : {0, 1}) {
      rank.channel().Send(to, rank.NextSend(to), out.data(), out.size(), nullptr, [](Status) {});
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // By a signal it would be one to Hydra, too, which then ends all ranks whatever it is told.
    _exit(7);
  }
  Ended lost[3];
  Memory sent(16 << 20);
  Memory whole(32 << 20);
  Memory never(1 << 20);
  Tag midway = rank.NextReceive(2);
  rank.channel().Receive(midway, whole.data(), whole.size(), nullptr, lost[0].done());
  rank.channel().Send(2, rank.NextSend(2), sent.data(), sent.size(), sent.keep(), lost[1].done());
  Tag later = rank.NextReceive(2);
  rank.channel().Receive(later, never.data(), never.size(), never.keep(), lost[2].done());
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  // What has nothing to do with rank 2 does not notice.
  const auto others = [&](uint64_t seed) {
    if (rank.rank() == 0) {
      rank.Give(other, 5 << 20, seed);
      rank.Take(other, 5 << 20, seed + 1);
    } else {
      rank.Take(other, 5 << 20, seed);
      rank.Give(other, 5 << 20, seed + 1);
    }
  };
  others(1);
  rank.channel().Lose(2);
  for (int i = 0; i < 3; ++i) {
    // MPI may have noticed before.
    const Status status = lost[i].Wait();
    if (i == 0 && status.ok()) {
      whole.CheckFilled(2);
    } else {
      CheckCode(status, StatusCode::kUnavailable);
    }
    std::fprintf(stderr, "rank %d: %s\n", rank.rank(), status.message().c_str());
  }
  Eventually("what was never sent is given back", [&] { return never.released(); });
  never.CheckUntouched();
  Ended after;
  rank.channel().Send(2, rank.NextSend(2), sent.data(), 1, nullptr, after.done());
  CheckCode(after.Wait(), StatusCode::kUnavailable, "rank 2 of the MPI job is lost");
  others(3);
  std::printf("kept %llu\n", static_cast<unsigned long long>(rank.channel().counts().kept.load()));
}

void Speed(Rank& rank) {
  for (const size_t size : {size_t{64} << 20, size_t{4096}}) {
    constexpr int kRounds = 20;
    Memory memory(size);
    std::vector<double> seconds;
    for (int i = 0; i < kRounds; ++i) {
      const auto start = std::chrono::steady_clock::now();
      for (int turn = 0; turn < 2; ++turn) {
        Ended ended;
        Tag tag;
        if (rank.rank() == turn) {
          rank.channel().Send(1 - turn, rank.NextSend(1 - turn), memory.data(), size, nullptr,
                              ended.done());
        } else {
          tag = rank.NextReceive(1 - rank.rank());
          rank.channel().Receive(tag, memory.data(), size, nullptr, ended.done());
        }
        CheckOk(ended.Wait());
      }
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
      seconds.push_back(took.count() / 2);
    }
    std::sort(seconds.begin(), seconds.end());
    if (rank.rank() == 0) std::printf("us_%zu %.1f\n", size, 1e6 * seconds[kRounds / 2]);
  }
}

// MPI that the program has begun, as mpi4py does: it is used and left as it is.
int Foreign(bool multiple) {
  StatusOr<std::unique_ptr<Library>> library = OpenLibrary();
  CheckOk(library.status());
  Calls& calls = *(*library)->calls;
  if (multiple) {
    CheckOk(calls.Init().status());
  } else {
    void* const handle = dlopen((*library)->path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    const auto init = reinterpret_cast<int (*)(int*, char***)>(dlsym(handle, "MPI_Init"));
    Check(init(nullptr, nullptr) == 0, "MPI_Init");
  }
  StatusOr<std::unique_ptr<Channel>> channel = Channel::Start({});
  if (!channel.ok()) {
    Check(!multiple, channel.status().message());
    std::printf("says %s\n", channel.status().message().c_str());
  } else {
    Check((*channel)->library().path == (*library)->path, "the same library");
    Rank rank(**channel);
    AwaitDrawn(rank);
    rank.Meet();
    const int other = 1 - rank.rank();
    Check(!calls.Finalized(), "it is the program's to finalize");
    CheckOk(calls.Finalize());
    Ended late;
    uint8_t byte = 0;
    rank.channel().Send(other, rank.NextSend(other), &byte, 1, nullptr, late.done());
    CheckCode(late.Wait(), StatusCode::kUnavailable, "the program has finalized its MPI");
    (*channel)->Stop();
    std::printf("ok foreign\n");
    return 0;
  }
  CheckOk(calls.Finalize());
  std::printf("ok foreign\n");
  return 0;
}

// A channel that no one stops: it ends with the process.
int Exits() {
  Channel* const channel = Value(Channel::Get());
  Check(Value(Channel::Get()) == channel, "one for the process");
  Rank rank(*channel);
  AwaitDrawn(rank);
  rank.Meet();
  std::printf("ok exits\n");
  return 0;
}

// Rank 0 ends by an error, while the others wait for what it was to do.
int Fails() {
  Rank rank(*Value(Channel::Get()));
  AwaitDrawn(rank);
  rank.Meet();
  if (rank.rank() == 0) return 3;
  std::this_thread::sleep_for(std::chrono::seconds(60));
  std::printf("ok waited\n");
  return 0;
}

std::string Hex(const Token& token) {
  std::string text;
  char digits[3];
  for (const uint8_t byte : token) {
    std::snprintf(digits, sizeof(digits), "%02x", byte);
    text += digits;
  }
  return text;
}

int Run(const std::string& name, int patience_ms) {
  if (name == "foreign" || name == "foreign-single") return Foreign(name == "foreign");
  if (name == "exits") return Exits();
  if (name == "fails") return Fails();
  std::vector<Scenario> all = Scenarios();
  all.push_back({"idle", 2, kChunkBytes, Idle});
  all.push_back({"death", 3, 1 << 20, Death});
  all.push_back({"speed", 2, kChunkBytes, Speed});
  all.push_back({"start", 0, kChunkBytes, nullptr});
  for (const Scenario& scenario : all) {
    if (scenario.name != name) continue;
    Channel::Options options;
    options.chunk_bytes = scenario.chunk_bytes;
    options.patience_ms = patience_ms;
    StatusOr<std::unique_ptr<Channel>> channel = Channel::Start(options);
    if (!channel.ok()) {
      std::printf("code %d\nsays %s\n", static_cast<int>(channel.status().code()),
                  channel.status().message().c_str());
      std::fflush(stdout);
      // What MPI has begun does not end by itself.
      std::_Exit(3);
    }
    const Job& job = (*channel)->job();
    std::printf("rank %d\nsize %d\ntoken %s\nlargest_tag %d\nlibrary %s\nversion %s\n", job.rank,
                job.size, Hex(job.token).c_str(), job.largest_tag,
                (*channel)->library().path.c_str(), (*channel)->library().version.c_str());
    std::printf("flavour %d\n", static_cast<int>((*channel)->library().flavour));
    const Status enough = (*channel)->Enough(scenario.ranks == 0 ? 2 : scenario.ranks);
    std::printf("enough %s\n", enough.message().c_str());
    if (scenario.run) {
      CheckOk(enough);
      Rank rank(**channel);
      AwaitDrawn(rank);
      scenario.run(rank);
      rank.channel().Stop();
    } else {
      (*channel)->Stop();
    }
    std::printf("ok %s\n", name.c_str());
    return 0;
  }
  std::fprintf(stderr, "no scenario %s\n", name.c_str());
  return 2;
}

}  // namespace
}  // namespace ar_grpc::mpi::testing

int main(int argc, char** argv) {
  // Hydra tells the others of a rank's death by it, which would be theirs.
  signal(SIGUSR1, SIG_IGN);
  // Each rank a file: launchers mix up what two say at once.
  if (const char* const folder = ar_grpc::mpi::testing::Folder()) {
    const std::string path = std::string(folder) + "/" + std::to_string(getpid());
    if (std::freopen(path.c_str(), "w", stdout) == nullptr) return 2;
  }
  return ar_grpc::mpi::testing::Run(argc > 1 ? argv[1] : "", argc > 2 ? std::atoi(argv[2]) : 60000);
}
