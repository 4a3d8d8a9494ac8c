// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_PIGGYBACKED_CLEANUPS_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_PIGGYBACKED_CLEANUPS_H_

#include <atomic>
#include <cstdint>

#include "tensorflow/core/distributed_runtime/worker_interface.h"
#include "tensorflow/core/protobuf/worker.pb.h"
#include "third_party/ar_grpc/protocol/step_cleanups.h"

// The cleanups of earlier steps in RunGraph's messages: fields that upstream's do not have, so that
// a server without this skips them, and shows it by an answer without one.
namespace ar_grpc {

// A client's side. Puts what `cleanups` keeps into `request`, and returns what is to be called in
// place of `done` when the call that it is for has ended, with `response`.
tensorflow::StatusCallback PiggybackCleanups(protocol::StepCleanups* cleanups,
                                             tensorflow::RunGraphRequest* request,
                                             const tensorflow::RunGraphResponse* response,
                                             tensorflow::StatusCallback done);

// The server's side. Has `worker` do what came with `request`, and says so in `response`.
void DoPiggybackedCleanups(tensorflow::WorkerInterface* worker,
                           const tensorflow::RunGraphRequest& request,
                           tensorflow::RunGraphResponse* response);

// Of this process: what came to its servers, and the calls that its masters made.
struct CleanupCounts {
  std::atomic<uint64_t> piggybacked{0};
  std::atomic<uint64_t> called{0};
  std::atomic<uint64_t> calls_made{0};
};
CleanupCounts& Cleanups();

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_PIGGYBACKED_CLEANUPS_H_
