// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_HANDSHAKE_ATTACHMENT_H_
#define THIRD_PARTY_AR_GRPC_GRPC_HANDSHAKE_ATTACHMENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/grpc/mailbox.h"
#include "third_party/ar_grpc/protocol/link.h"

namespace ar_grpc {

// This end of the fabric that a handshake attempts now: the attachment, what that says, and the
// connection that comes of it. Nothing of gRPC's is in here. One thread at a time, but for what
// attachments do: see Mailbox.
class HandshakeAttachment {
 public:
  // `prepare`: as Mailbox's; Take() is to be called soon after what it returns has run.
  HandshakeAttachment(protocol::End end, std::function<std::function<void()>()> prepare);
  ~HandshakeAttachment() { Close(); }

  // Begins the attachment for `attempt`, instead of the one before.
  Status Begin(fabric::Context* context, uint32_t attempt);
  // A frame of the peer's; one for another attempt is dropped.
  void TakeFrame(uint32_t attempt, const std::string& bytes);
  // Destroys the attachment, and its connection if there is one.
  void GiveUp();
  // After this nothing is woken any more.
  void Close();

  struct News {
    uint32_t attempt = 0;
    bool ended = false;
    std::string frame;  // for the peer's attachment, unless `ended`
    // Why there is no connection; kOk: there is one, and all that its endpoint will need.
    Status status;
  };
  // What the attachment has said. What one says that was given up is not for its successor, though
  // that may have the same number on a fresh TCP connection.
  std::vector<News> Take();
  // To be called when what `prepare` returned has run, before Take.
  void Woken() { mailbox_->Woken(); }

  // Of an attempt that ended well; nullptr and -1 otherwise. The descriptor is the caller's to
  // close: a duplicate of the connection's own, for a poller that may outlive it; -1 where it
  // carries no stream.
  std::unique_ptr<fabric::Connection> TakeConnection() { return std::move(connection_); }
  int TakeWake() { return std::exchange(wake_, -1); }

 private:
  Status Keep(std::unique_ptr<fabric::Connection> connection);
  void DropConnection();

  const protocol::End end_;
  const std::shared_ptr<Mailbox> mailbox_;
  // Counts attachments: letters bear it, since attempts of several connections share numbers.
  uint32_t begun_ = 0;
  uint32_t attempt_ = 0;
  bool live_ = false;  // the last one begun was not given up
  std::unique_ptr<fabric::Attachment> attachment_;
  std::unique_ptr<fabric::Connection> connection_;
  int wake_ = -1;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_HANDSHAKE_ATTACHMENT_H_
