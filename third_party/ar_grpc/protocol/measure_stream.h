// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_STREAM_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_STREAM_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "third_party/ar_grpc/protocol/figures.h"
#include "third_party/ar_grpc/protocol/measure_time.h"

// What gRPC's byte stream takes over whatever carries it.
namespace ar_grpc::protocol::measuring {

// One direction of a stream, both of whose ends are this thread's.
class Wire {
 public:
  virtual ~Wire() = default;
  // As fabric::Connection's; -1 for an error.
  virtual int64_t Write(const iovec* parts, int count) = 0;
  virtual int64_t Read(void* into, size_t size) = 0;
  // The receiver's readiness: what its poller waits for, what it does when that has come, and how
  // it asks for more.
  virtual int fd() const = 0;
  virtual void Woken() = 0;
  virtual bool Arm() = 0;
};

struct StreamTimes {
  Least small_send;
  Least small_receive;
  Least plain_send;   // a large message in one piece
  Least framed_send;  // and in frames
  Least framed_receive;
  uint64_t room = 0;
};

// What is sent through a stream, and the block that it is read into. Each call gives false where
// the stream does not work.
class Messages {
 public:
  // After `deadline` a stream that does not move counts as broken.
  explicit Messages(Clock::time_point deadline);

  bool Small(Wire* wire, StreamTimes* times);
  // In one piece, and in frames.
  bool Large(Wire* wire, StreamTimes* times);
  // How much the stream takes before somebody reads.
  bool Fill(Wire* wire, StreamTimes* times);

 private:
  // Sends a message and receives it, in turns where it does not fit at once.
  bool Pass(Wire* wire, iovec* parts, int count, size_t size, double* send, double* receive);

  const Clock::time_point deadline_;
  std::vector<uint8_t> from_;
  std::vector<uint8_t> block_;
  size_t at_ = 0;
};

// What follows from the times, if the stream worked.
void TakeStream(const StreamTimes& times, Figures* figures);

}  // namespace ar_grpc::protocol::measuring

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_STREAM_H_
