// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_CALLS_H_
#define THIRD_PARTY_AR_GRPC_MPI_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "third_party/ar_grpc/base/status.h"

// MPI as this folder uses it, whichever binary interface is below.
namespace ar_grpc::mpi {

// Handles of MPI's, whose meaning only the implementation of Calls knows.
enum class Communicator : uintptr_t {};
enum class Request : uintptr_t {};
enum class Message : uintptr_t {};

enum class ThreadLevel { kLess, kMultiple };

// A message that has arrived, or has begun to. It is this process's alone from now on, and stays
// with MPI until it is received.
struct Arrival {
  Message message{};
  int rank = 0;
  int tag = 0;
  uint64_t bytes = 0;
};

// The table of functions: one for each binary interface, and the tests' own. Whoever calls Init
// calls all the others in the same thread, the first three aside, which are for any thread and
// time.
class Calls {
 public:
  virtual ~Calls() = default;

  virtual std::string Version() = 0;
  virtual bool Initialized() = 0;
  virtual bool Finalized() = 0;

  virtual StatusOr<ThreadLevel> Init() = 0;
  // Of an MPI that is initialized already.
  virtual StatusOr<ThreadLevel> Level() = 0;
  virtual Status Finalize() = 0;
  // `run` runs when somebody finalizes MPI, in that thread, while all of it still works.
  virtual Status BeforeFinalize(std::function<void()> run) = 0;

  virtual Communicator World() = 0;
  virtual StatusOr<int> Rank(Communicator communicator) = 0;
  virtual StatusOr<int> Size(Communicator communicator) = 0;
  // *copy is good once the request has ended.
  virtual StatusOr<Request> StartCopy(Communicator communicator, Communicator* copy) = 0;
  // Its errors are returned from now on, instead of ending the process.
  virtual Status ReturnErrors(Communicator communicator) = 0;
  // The largest tag that a message may have.
  virtual StatusOr<int> LargestTag(Communicator communicator) = 0;
  virtual StatusOr<Request> StartBroadcast(void* bytes, size_t size, int root,
                                           Communicator communicator) = 0;

  // Messages of at most INT_MAX bytes. A send ends when its receive has begun and its memory is
  // free, not when MPI has a copy: after its end nothing of it needs this process.
  virtual StatusOr<Request> StartSend(const void* bytes, size_t size, int rank, int tag,
                                      Communicator communicator) = 0;
  // `into` has room for all of it, and is MPI's until the request has ended: none can be recalled.
  virtual StatusOr<Request> StartReceive(void* into, const Arrival& arrival) = 0;
  // The next message that has arrived, of any rank and tag. Lets MPI work, too.
  virtual StatusOr<std::optional<Arrival>> Probe(Communicator communicator) = 0;
  // How an operation has ended, once it has; the request is gone then. Lets MPI work. One request
  // at a time: of an error in a list MPICH tells the handler of MPI_COMM_WORLD, which ends the
  // process.
  virtual std::optional<Status> Test(Request request) = 0;
};

// The binary interface of an opened library.
enum class Flavour { kStandard, kOpenMpi, kMpich };

// Those of an open library: `handle` is of dlopen, and stays open. kUnimplemented names a function
// that `path` lacks.
StatusOr<std::unique_ptr<Calls>> Bind(Flavour flavour, void* handle, const std::string& path);

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_CALLS_H_
