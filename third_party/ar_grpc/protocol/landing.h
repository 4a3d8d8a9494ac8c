// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_LANDING_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_LANDING_H_

#include <pthread.h>

#include <mutex>

namespace ar_grpc::protocol {

// The memory that one transfer writes to, as long as its owner lets it. An owner that stops waiting
// for the transfer, as a collective does whose time is up, takes it back first. Thread-safe.
class Landing {
 public:
  Landing() = default;
  Landing(const Landing&) = delete;
  Landing& operator=(const Landing&) = delete;

  // Whether a write may begin; if so, Leave ends it.
  bool Enter();
  void Leave();

  // Returns once no write is under way; none begins any more. Not for a thread that writes.
  void TakeBack();
  bool taken_back();

 private:
  std::mutex mu_;
  // Not std::condition_variable: its wait asks for a newer libstdc++ than all else here.
  pthread_cond_t left_ = PTHREAD_COND_INITIALIZER;
  int writers_ = 0;
  bool taken_back_ = false;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_LANDING_H_
