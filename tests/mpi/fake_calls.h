// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_MPI_FAKE_CALLS_H_
#define TESTS_MPI_FAKE_CALLS_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "third_party/ar_grpc/mpi/library.h"

// MPI among the threads of one process, for the sanitizers, under which the real ones do not run.
// It takes its time by chance, and says what it is told to of itself.
namespace ar_grpc::mpi::testing {

// What a fake says of itself.
struct Says {
  bool initialized = true;
  bool finalized = false;
  ThreadLevel level = ThreadLevel::kMultiple;
};

class FakeCalls;

// What the ranks share.
class FakeJob {
 public:
  explicit FakeJob(int ranks)
      : ranks_(ranks),
        all_(ranks),
        queues_(ranks),
        dead_(ranks),
        failing_(ranks),
        matched_(ranks),
        begun_(ranks) {}
  // A library of its own for a rank's channel.
  std::unique_ptr<Library> LibraryOf(int rank, Says says = {});
  // Nothing of this rank's goes on, and nothing to it.
  void Kill(int rank);
  // How many of the messages that a rank sends have been matched, and have been given memory to be
  // received into.
  int Matched(int from);
  int Begun(int from);
  // Whether a rank's looks for messages fail from now on.
  void FailProbes(int rank, bool fail);
  // As the program's own call of MPI_Finalize in a rank; no other call may be made there then.
  void Finalize(int rank);
  bool Finalized(int rank) const;

 private:
  friend class FakeCalls;
  struct Sent {
    int from;
    int tag;
    const uint8_t* bytes;
    uint64_t size;
    bool received = false;
  };

  const int ranks_;
  // By the rank; its library owns it.
  std::vector<FakeCalls*> all_;
  std::mutex mu_;
  // By the receiver's rank.
  std::vector<std::deque<std::shared_ptr<Sent>>> queues_;
  std::vector<bool> dead_;
  std::vector<bool> failing_;
  // By the sender's rank.
  std::vector<int> matched_;
  std::vector<int> begun_;
  std::vector<uint8_t> broadcast_;
};

}  // namespace ar_grpc::mpi::testing

#endif  // TESTS_MPI_FAKE_CALLS_H_
