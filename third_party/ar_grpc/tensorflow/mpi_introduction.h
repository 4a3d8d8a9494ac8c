// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_MPI_INTRODUCTION_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_MPI_INTRODUCTION_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/mpi/channel.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {

// What a receiver of grpc+mpi knows of one peer: its rank, asked for by a call when it is first
// needed, and that it lives, by a call that stays open. Whoever receives from the peer by one
// worker cache shares it, as KeptWorkers shares the worker: its calls are those of a living worker.
// What another cache leads to may be another process, with another rank. Thread-safe.
class MpiIntroduction : public std::enable_shared_from_this<MpiIntroduction> {
 public:
  MpiIntroduction(mpi::Channel* channel, std::shared_ptr<const TensorCaller> caller)
      : channel_(channel), caller_(std::move(caller)) {}

  // Calls `known` with the peer's rank, or why there is none, perhaps before it returns. A later
  // call tries again.
  void WhenKnown(std::function<void(StatusOr<int> rank)> known);

  // Tells the peer that this end has not died, before the TCP connection may go. To be called while
  // calls can be made; none are made after it.
  void Close();

 private:
  enum class State { kUnknown, kAsking, kKnown };

  void SayHello();
  void OnHello(StatusOr<int> rank);
  // Holding mu_. Its end comes in another thread.
  void Watch(int rank);

  mpi::Channel* const channel_;
  const std::shared_ptr<const TensorCaller> caller_;
  std::mutex mu_;
  // Guarded by mu_.
  State state_ = State::kUnknown;
  bool closed_ = false;
  int rank_ = 0;
  Token watch_{};
  std::vector<std::function<void(StatusOr<int>)>> waiting_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_MPI_INTRODUCTION_H_
