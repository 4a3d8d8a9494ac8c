// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_HANDSHAKE_MACHINE_H_
#define THIRD_PARTY_AR_GRPC_GRPC_HANDSHAKE_MACHINE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/handshake.h"
#include "third_party/ar_grpc/protocol/link.h"

namespace ar_grpc {

// The machine of either end (protocol/handshake.h), as one: it decides what a handshake does.
class HandshakeMachine {
 public:
  // `version`: a client's, as ClientHandshake has it.
  HandshakeMachine(protocol::End end, protocol::HandshakeOptions options, uint16_t version);

  // What both ends are told, with the time of now.
  protocol::Steps Start();
  protocol::Steps Received(const std::string& bytes);
  protocol::Steps Closed();
  protocol::Steps FrameToSend(uint32_t attempt, std::string bytes);
  protocol::Steps Attached(uint32_t attempt, const Status& status);
  protocol::Steps Expired();
  // A client's only.
  protocol::Steps Reconnected();

  protocol::Instant deadline() const;
  bool ended() const;
  bool wants_bytes() const;
  const protocol::Peer& peer() const;
  // As a client's; -1 of a server's.
  int version_to_remember() const;
  std::string TakeUnread();

 private:
  // One of them.
  std::unique_ptr<protocol::ClientHandshake> client_;
  std::unique_ptr<protocol::ServerHandshake> server_;
};

// Whether a step of this kind leaves TCP to others: nothing of the handshake may use it after.
bool HandsOnTcp(protocol::Step::Kind kind);

// What to begin a handshake with, where the connection may use these fabrics ("tcp" is one).
protocol::HandshakeOptions HandshakeOptionsFor(const protocol::NodeId& node,
                                               const std::vector<std::string>& allowed);
bool AllowsTcp(const std::vector<std::string>& allowed);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_HANDSHAKE_MACHINE_H_
