// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/mpi/runtime.h"

#include <time.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "third_party/ar_grpc/base/log.h"

namespace ar_grpc::mpi {
namespace {

Launcher Started() {
  return LauncherOf([](const char* name) -> const char* { return std::getenv(name); });
}

// Says so where the library is not that of the launcher; else empty.
std::string Foreign(Launcher launcher, const Library& library) {
  const bool open_mpi = library.version.compare(0, 8, "Open MPI") == 0;
  if (launcher != (open_mpi ? Launcher::kMpich : Launcher::kOpenMpi)) return "";
  return std::string("was started by ") + (open_mpi ? "MPICH's" : "Open MPI's") +
         " mpirun, but uses " + library.path + " (" + library.version +
         "): name the library of that mpirun in " + kLibraryVariable;
}

}  // namespace

StatusOr<std::unique_ptr<Runtime>> Runtime::Start(std::unique_ptr<Library> library,
                                                  int patience_ms) {
  std::unique_ptr<Runtime> runtime(new Runtime(std::move(library)));
  Status status = runtime->Initialize();
  if (!status.ok()) return status;
  status = runtime->Join(patience_ms);
  if (status.ok()) return runtime;
  // MPI may still write the communicator and the token that it was asked for.
  (void)runtime.release();
  return status;
}

Status Runtime::Initialize() {
  if (calls().Finalized()) {
    return Status(StatusCode::kFailedPrecondition,
                  "MPI was finalized in this process and cannot start again: finalize it after the "
                  "last server of grpc+mpi");
  }
  ours_ = !calls().Initialized();
  // Some MPIs end the process when they are initialized without a launcher.
  if (ours_ && Started() == Launcher::kNone) {
    return Status(StatusCode::kFailedPrecondition,
                  "this process was not started by an MPI launcher: start all tasks of the cluster "
                  "with one, as in mpirun -np TASKS python3 PROGRAM");
  }
  // MPICH ends the process then. Open MPI under Slurm's interface, which is MPICH's, is right.
  const std::string foreign =
      ours_ && Started() == Launcher::kOpenMpi ? Foreign(Launcher::kOpenMpi, *library_) : "";
  if (!foreign.empty()) {
    return Status(StatusCode::kFailedPrecondition, "this process " + foreign);
  }
  StatusOr<ThreadLevel> level = ours_ ? calls().Init() : calls().Level();
  if (!level.ok()) return level.status();
  if (*level == ThreadLevel::kMultiple) return OkStatus();
  if (ours_) {
    return Status(StatusCode::kFailedPrecondition,
                  library_->path + " (" + library_->version +
                      ") does not give MPI_THREAD_MULTIPLE: install an MPI that is built with it");
  }
  return Status(StatusCode::kFailedPrecondition,
                "this program has initialized MPI without MPI_THREAD_MULTIPLE: initialize it with "
                "(mpi4py: mpi4py.rc.thread_level = 'multiple'), or leave it to the server");
}

Status Runtime::Join(int patience_ms) {
  StatusOr<int> rank = calls().Rank(calls().World());
  if (!rank.ok()) return rank.status();
  StatusOr<int> size = calls().Size(calls().World());
  if (!size.ok()) return size.status();
  job_.rank = *rank;
  job_.size = *size;
  StatusOr<Request> copy = calls().StartCopy(calls().World(), &communicator_);
  if (!copy.ok()) return copy.status();
  Status status = Await(*copy, patience_ms);
  if (!status.ok()) return status;
  status = calls().ReturnErrors(communicator_);
  if (!status.ok()) return status;
  StatusOr<int> tag = calls().LargestTag(communicator_);
  if (!tag.ok()) return tag.status();
  job_.largest_tag = *tag;
  // One that we have initialized the program may finalize all the same.
  status = calls().BeforeFinalize([gate = gate_] {
    std::lock_guard<std::mutex> lock(gate->mu);
    gate->over = true;
  });
  if (!status.ok()) return status;
  if (job_.rank == 0) job_.token = NewToken();
  StatusOr<Request> token =
      calls().StartBroadcast(job_.token.data(), job_.token.size(), 0, communicator_);
  if (!token.ok()) return token.status();
  return Await(*token, patience_ms);
}

// Polls, since MPI has no wait that ends.
Status Runtime::Await(Request request, int patience_ms) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(patience_ms);
  while (true) {
    const std::optional<Status> ended = calls().Test(request);
    if (ended) return *ended;
    if (std::chrono::steady_clock::now() >= end) break;
    const timespec nap = {0, 1000000};
    nanosleep(&nap, nullptr);
  }
  return NotAllStarted("the " + std::to_string(job_.size), patience_ms);
}

Status NotAllStarted(const std::string& which, int patience_ms) {
  return Status(StatusCode::kDeadlineExceeded,
                "not all of " + which + " ranks of this MPI job have started grpc+mpi within " +
                    std::to_string(patience_ms / 1000) +
                    " s: start a server in each, and no rank without one");
}

void Runtime::Finalize() {
  if (!ours_) return;
  {
    // Not held in MPI_Finalize, which calls what locks it.
    std::lock_guard<std::mutex> lock(gate_->mu);
    if (std::exchange(gate_->over, true)) return;
  }
  const Status status = calls().Finalize();
  if (!status.ok()) Log(Severity::kWarning, status.message());
}

Status EnoughRanks(const Job& job, const Library& library, Launcher launcher, int tasks) {
  if (job.size >= tasks) return OkStatus();
  const std::string wants = "the cluster has " + std::to_string(tasks) + " tasks";
  const std::string start = "start all of them with one mpirun -np " + std::to_string(tasks);
  if (job.size > 1) {
    return Status(StatusCode::kFailedPrecondition, "the MPI job has " + std::to_string(job.size) +
                                                       " ranks, " + wants + ": " + start);
  }
  const std::string foreign = Foreign(launcher, library);
  if (!foreign.empty()) {
    return Status(StatusCode::kFailedPrecondition,
                  "this process is alone in its MPI job, and " + wants + ": it " + foreign);
  }
  return Status(StatusCode::kFailedPrecondition,
                "this process is alone in its MPI job, and " + wants + ": " + start);
}

}  // namespace ar_grpc::mpi
