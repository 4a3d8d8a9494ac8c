// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_SOCKET_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_SOCKET_H_

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/protocol/measure_stream.h"

// What measures TCP as gRPC uses it.
namespace ar_grpc::protocol::measuring {

// `to` receives what is sent into `from`. No call blocks.
class SocketWire final : public Wire {
 public:
  SocketWire(int from, int to) : from_(from), to_(to) {}
  int64_t Write(const iovec* parts, int count) override;
  int64_t Read(void* into, size_t size) override;
  int fd() const override { return to_; }
  void Woken() override {}
  bool Arm() override { return true; }

 private:
  const int from_;
  const int to_;
};

// Both ends of one connection.
struct SocketPair {
  UniqueFd from;
  UniqueFd to;
};

// Over 127.0.0.1; a Unix one where that is refused, or not had by `deadline`.
SocketPair ConnectedSockets(Clock::time_point deadline);

// Sends one byte, which a sleeping thread waits for with Hear. false: it cannot be sent, or none
// came in time.
bool Tell(int fd);
bool Hear(int fd, int timeout_ms);

}  // namespace ar_grpc::protocol::measuring

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_SOCKET_H_
