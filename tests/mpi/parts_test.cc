// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What needs no MPI: which library, which tags, how many messages, how long to rest; and what is
// said where MPI cannot be used.

#include <climits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/mpi/fake_calls.h"
#include "tests/units/expect.h"
#include "third_party/ar_grpc/mpi/chunks.h"
#include "third_party/ar_grpc/mpi/naps.h"
#include "third_party/ar_grpc/mpi/runtime.h"
#include "third_party/ar_grpc/mpi/tags.h"

namespace ar_grpc::mpi {
namespace {

using Variables = std::map<std::string, std::string>;

Environment Of(const Variables& variables) {
  return [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

std::string First(const Variables& variables, const std::vector<std::string>& loaded = {}) {
  const StatusOr<Choice> choice = Choose(loaded, Of(variables));
  return choice.ok() ? choice->candidates[0] : choice.status().message();
}

void Libraries() {
  EXPECT(First({}) == "libmpi.so.40");
  EXPECT(First({{"AR_MPI_LIB", ""}}) == "libmpi.so.40");
  EXPECT(First({{"AR_MPI_LIB", "/x/libmpi.so"}, {"PMI_RANK", "0"}}) == "/x/libmpi.so");
  EXPECT(First({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}}) == "libmpi.so.40");
  EXPECT(First({{"PMI_RANK", "0"}}) == "libmpi_abi.so.1");
  EXPECT(First({{"PMI_RANK", "0"}}, {"/y/libmpi.so.40"}) == "/y/libmpi.so.40");
  EXPECT(First({}, {"/a/libmpi.so.12", "/b/libmpi.so.40"}) ==
         "two MPI libraries are in this process, /a/libmpi.so.12 and /b/libmpi.so.40: import "
         "modules of one MPI only, the one whose mpirun starts the program");
  for (const char* path : {"/a/libmpi.so.40.30.4", "libmpi.so", "/b/libmpich.so.12",
                           "libmpi_abi.so.1", "/c/libmpi.so.12.0"}) {
    EXPECT(IsMpiLibrary(path));
  }
  for (const char* path : {"", "/a/libmpi_cxx.so.40", "libmpichfort.so.12", "/libmpi.so.40/x.so",
                           "libmpi.soap", "libmpifort.so.12", "xlibmpi.so.40"}) {
    EXPECT(!IsMpiLibrary(path));
  }
  EXPECT(LauncherOf(Of({})) == Launcher::kNone);
  EXPECT(LauncherOf(Of({{"PMIX_RANK", "1"}})) == Launcher::kOther);
  EXPECT(LauncherOf(Of({{"HYDI_CONTROL_FD", "7"}})) == Launcher::kMpich);
}

void DrawnTags() {
  Tags tags(99);
  std::set<int> drawn;
  for (int i = 0; i < 100; ++i) drawn.insert(*tags.Draw(5));
  EXPECT(drawn.size() == 100 && *drawn.begin() == 0 && *drawn.rbegin() == 99);
  const StatusOr<int> none = tags.Draw(5);
  EXPECT(none.status().code() == StatusCode::kResourceExhausted);
  EXPECT(none.status().message() == "all 100 tags of MPI are in use for messages from rank 5");
  EXPECT(tags.Draw(6).ok());
  EXPECT(tags.Drawn(5, 42) && !tags.Drawn(6, 42) && !tags.Drawn(7, 0));
  // One that is used up comes again, the others only after as many of their like as may be.
  tags.GiveBack(5, 42, true);
  EXPECT(!tags.Drawn(5, 42) && *tags.Draw(5) == 42);
  for (int tag = 0; tag < 50; ++tag) tags.GiveBack(5, tag, false);
  EXPECT(!tags.Draw(5).ok());
  tags.GiveBack(5, 50, false);
  EXPECT(*tags.Draw(5) == 0);
  // Given back twice, it is given back once.
  tags.GiveBack(5, 50, true);
  EXPECT(!tags.Draw(5).ok());
  Tags all(INT_MAX);
  EXPECT(*all.Draw(0) == 0 && *all.Draw(0) == 1);
}

void Messages() {
  for (const uint64_t size : {0, 1, 9, 10, 11, 19, 20, 21}) {
    const Chunks chunks{size, 10};
    uint64_t sum = 0;
    for (uint64_t i = 0; i < chunks.count(); ++i) {
      EXPECT(chunks.offset(i) == sum);
      EXPECT((chunks.bytes(i) == 10) == (i + 1 < chunks.count()));
      sum += chunks.bytes(i);
    }
    EXPECT(sum == size);
  }
  const Chunks large{uint64_t{5} << 40, kChunkBytes};
  EXPECT(large.count() == (5 << 14) + 1 && large.bytes(0) == kChunkBytes);
  EXPECT(large.bytes(large.count() - 1) == 0);
  static_assert(kChunkBytes <= INT_MAX);
}

void Naps() {
  const Waiting somebody = {true, false, false};
  EXPECT(Nap(somebody, 0) == 0 && Nap(somebody, 49) == 0);
  EXPECT(Nap(somebody, 80) == 10 && Nap(somebody, 400) == 50 && Nap(somebody, 250000) == 50);
  EXPECT(Nap(somebody, 1000000) == 200 && Nap(somebody, 1000000000) == 1000);
  EXPECT(Nap({}, 0) == 1000 && Nap({}, 99999) == 1000 && Nap({}, 100000) == kForever);
  EXPECT(Nap({false, true, false}, 400) == 50 && Nap({false, true, false}, 5000000) == 250000);
  EXPECT(Nap({false, false, true}, 100000) == 250000);
}

Status Started(testing::Says says, int ranks = 1, int rank = 0) {
  // Of a failed one, MPI may still write what it was given.
  auto* const job = new testing::FakeJob(ranks);  // NOLINT
  return Runtime::Start(job->LibraryOf(rank, says), 10).status();
}

void Refusals() {
  EXPECT(Started({}).ok());
  EXPECT(Started({true, true, ThreadLevel::kMultiple}).message() ==
         "MPI was finalized in this process and cannot start again: finalize it after the last "
         "server of grpc+mpi");
  EXPECT(Started({false, false, ThreadLevel::kMultiple}).message() ==
         "this process was not started by an MPI launcher: start all tasks of the cluster with "
         "one, as in mpirun -np TASKS python3 PROGRAM");
  EXPECT(Started({true, false, ThreadLevel::kLess}).message() ==
         "this program has initialized MPI without MPI_THREAD_MULTIPLE: initialize it with "
         "(mpi4py: mpi4py.rc.thread_level = 'multiple'), or leave it to the server");
  setenv("PMI_RANK", "0", 1);  // as MPICH's launcher does
  const std::string single = Started({false, false, ThreadLevel::kLess}).message();
  unsetenv("PMI_RANK");
  EXPECT(single.find(") does not give MPI_THREAD_MULTIPLE: install an MPI that is built with it") !=
         std::string::npos);
  const Status late = Started({}, 2, 1);
  EXPECT(late.code() == StatusCode::kDeadlineExceeded);
  EXPECT(
      late.message() ==
      "not all of the 2 ranks of this MPI job have started grpc+mpi within 0 s: start a server in "
      "each, and no rank without one");
}

void Ranks() {
  Library library;
  library.path = "/a/libmpi.so.12";
  library.version = "MPICH Version: 4.0.2";
  Job job;
  EXPECT(EnoughRanks(job, library, Launcher::kNone, 1).ok());
  EXPECT(EnoughRanks(job, library, Launcher::kMpich, 3).message() ==
         "this process is alone in its MPI job, and the cluster has 3 tasks: start all of them "
         "with one mpirun -np 3");
  EXPECT(EnoughRanks(job, library, Launcher::kOpenMpi, 3).message() ==
         "this process is alone in its MPI job, and the cluster has 3 tasks: it was started by "
         "Open MPI's mpirun, but uses /a/libmpi.so.12 (MPICH Version: 4.0.2): name the library of "
         "that mpirun in AR_MPI_LIB");
  job.size = 2;
  EXPECT(EnoughRanks(job, library, Launcher::kOpenMpi, 3).message() ==
         "the MPI job has 2 ranks, the cluster has 3 tasks: start all of them with one mpirun -np "
         "3");
}

}  // namespace
}  // namespace ar_grpc::mpi

int main() {
  ar_grpc::mpi::Libraries();
  ar_grpc::mpi::DrawnTags();
  ar_grpc::mpi::Messages();
  ar_grpc::mpi::Naps();
  ar_grpc::mpi::Refusals();
  ar_grpc::mpi::Ranks();
  std::printf("ok parts\n");
  // Runtimes that could not start are kept for MPI's sake, which LeakSanitizer would tell.
  std::fflush(stdout);
  std::_Exit(failures == 0 ? 0 : 1);
}
