// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_HANDSHAKE_TCP_H_
#define THIRD_PARTY_AR_GRPC_GRPC_HANDSHAKE_TCP_H_

#include <grpc/slice_buffer.h>
#include <grpc/support/port_platform.h>

#include <string>

#include "src/core/lib/iomgr/closure.h"
#include "src/core/lib/iomgr/endpoint.h"
#include "src/core/lib/iomgr/error.h"
#include "src/core/lib/transport/handshaker.h"

namespace ar_grpc {

// The bytes of one handshake over an endpoint of gRPC's: one write and one read under way at most.
//
// The closures are the owner's, who holds a reference to itself for each that is under way, and
// calls Sent and TakeReceived from them. Not thread-safe: one serializer runs all of it.
class HandshakeTcp {
 public:
  HandshakeTcp();
  ~HandshakeTcp();
  HandshakeTcp(const HandshakeTcp&) = delete;
  HandshakeTcp& operator=(const HandshakeTcp&) = delete;

  void Queue(const std::string& bytes) { unsent_ += bytes; }
  // Forgets what is queued and what came: for a connection that is given up.
  void Reset();

  bool has_unsent() const { return !unsent_.empty(); }
  bool sending() const { return sending_; }
  bool reading() const { return reading_; }

  // Writes what is queued. Nothing must be under way that way, here and in Receive.
  void Send(grpc_endpoint* endpoint, grpc_closure* sent);
  void Sent() { sending_ = false; }
  void Receive(grpc_endpoint* endpoint, grpc_closure* received);
  // What came by the read that has ended.
  std::string TakeReceived();

 private:
  std::string unsent_;
  bool sending_ = false;
  bool reading_ = false;
  // gRPC reads and writes these while an operation is under way.
  grpc_slice_buffer outgoing_;
  grpc_slice_buffer incoming_;
};

// What a handshake that failed was given: operations may be under way until the handshaker goes, so
// it takes this along.
class HandshakeRemains {
 public:
  HandshakeRemains() = default;
  ~HandshakeRemains();
  HandshakeRemains(const HandshakeRemains&) = delete;
  HandshakeRemains& operator=(const HandshakeRemains&) = delete;

  // Shuts the endpoint down and leaves nothing in `args`, as gRPC wants it. Once.
  void Take(grpc_core::HandshakerArgs* args, grpc_error_handle why);

 private:
  grpc_endpoint* endpoint_ = nullptr;
  grpc_slice_buffer* buffer_ = nullptr;
};

// Empties the buffer and gives its bytes.
std::string TakeBytes(grpc_slice_buffer* buffer);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_HANDSHAKE_TCP_H_
