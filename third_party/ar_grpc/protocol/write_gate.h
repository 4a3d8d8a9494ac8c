// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_WRITE_GATE_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_WRITE_GATE_H_

#include <pthread.h>

#include <mutex>

namespace ar_grpc::protocol {

// The memory that one transfer writes to, as long as its owner lets it. An owner that stops waiting
// for the transfer, as a collective does whose time is up, closes the gate first. Thread-safe.
class WriteGate {
 public:
  WriteGate() = default;
  WriteGate(const WriteGate&) = delete;
  WriteGate& operator=(const WriteGate&) = delete;

  // Whether a write may begin; if so, EndWrite ends it.
  bool BeginWrite();
  void EndWrite();

  // Returns once no write is under way; none begins any more. Not for a thread that writes.
  void Close();
  bool closed();

 private:
  std::mutex mu_;
  // Not std::condition_variable: its wait asks for a newer libstdc++ than all else here.
  pthread_cond_t ended_ = PTHREAD_COND_INITIALIZER;
  // Guarded by mu_.
  int writers_ = 0;
  bool closed_ = false;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_WRITE_GATE_H_
