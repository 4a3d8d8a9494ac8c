// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_RUNTIME_H_
#define THIRD_PARTY_AR_GRPC_MPI_RUNTIME_H_

#include <memory>
#include <mutex>
#include <string>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/mpi/library.h"

namespace ar_grpc::mpi {

// How long a process waits for the others of its job to start, too: their programs may first import
// and load for long.
inline constexpr int kPatienceMs = 120000;

// What this process is in its MPI job.
struct Job {
  int rank = 0;
  int size = 1;
  // The same in all ranks, and in no other job: peers that found each other otherwise show it to
  // tell whether a rank means the same process to both.
  Token token{};
  int largest_tag = 32767;
};

// MPI in this process, with a communicator of our own: what we send cannot be taken for the
// program's, and errors in it are returned. MPI_COMM_WORLD's error handler stays the program's. All
// calls come from one thread, the one that started it: MPI_Finalize is for the thread that
// initialized MPI.
class Runtime {
 public:
  // Initializes MPI unless the program has (mpi4py), and waits for all ranks of the job to do so,
  // for `patience_ms` at most. kFailedPrecondition: MPI is not of use in this process, and the
  // text says what to do; kDeadlineExceeded: some rank did not start.
  static StatusOr<std::unique_ptr<Runtime>> Start(std::unique_ptr<Library> library,
                                                  int patience_ms = kPatienceMs);

  const Job& job() const { return job_; }
  const Library& library() const { return *library_; }
  Calls& calls() const { return *library_->calls; }
  Communicator communicator() const { return communicator_; }
  // Runs `use`, in which MPI may be called. false: it did not run, since the program has finalized
  // its MPI; who does so waits until `use` has ended, so it must not wait for others.
  template <typename Function>
  bool Use(Function use) {
    std::lock_guard<std::mutex> lock(gate_->mu);
    if (gate_->over) return false;
    use();
    return true;
  }

  // MPI_Finalize, where MPI_Init was ours and the program has not called it. It waits for all other
  // ranks to do so: an Open MPI job in which a rank ends without is ended by mpirun. Not for when a
  // rank is lost or MPI holds memory: then it may never return.
  void Finalize();

 private:
  // Outlives this: MPI is told to close it.
  struct Gate {
    std::mutex mu;
    bool over = false;
  };

  explicit Runtime(std::unique_ptr<Library> library) : library_(std::move(library)) {}
  Status Initialize();
  Status Join(int patience_ms);
  Status Await(Request request, int patience_ms);

  const std::unique_ptr<Library> library_;
  const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
  bool ours_ = false;
  Communicator communicator_{};
  Job job_;
};

// kDeadlineExceeded: some of `which` ("the 3") ranks did not start.
Status NotAllStarted(const std::string& which, int patience_ms);

// kOk where a job of this size has a rank for each of `tasks`; else why it has not, as far as can
// be told, and what to do.
Status EnoughRanks(const Job& job, const Library& library, Launcher launcher, int tasks);

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_RUNTIME_H_
