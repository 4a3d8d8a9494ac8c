// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_TOKEN_ATTACHMENT_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_TOKEN_ATTACHMENT_H_

#include <functional>
#include <memory>
#include <string>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/token_frame.h"

// Attachments of fabrics whose processes meet at an address: the server sends it with a token, and
// whoever shows the token there is the client. For shm and loopback.
namespace ar_grpc::fabric {

using ConnectDone = std::function<void(StatusOr<std::unique_ptr<Connection>>)>;

// Waits for peers that show an expected token. Thread-safe; nothing here blocks.
class TokenListener {
 public:
  virtual ~TokenListener() = default;
  // Where peers connect.
  virtual std::string address() const = 0;
  // The first connection that shows `token` goes to `done`, before the client hears of it; an
  // impostor's is closed. At most once; also after Forget when it was under way by then.
  virtual void Expect(const Token& token, ConnectDone done) = 0;
  virtual void Forget(const Token& token) = 0;
};

// The server's end.
StatusOr<std::unique_ptr<Attachment>> AcceptByToken(std::shared_ptr<TokenListener> listener,
                                                    AttachEvents events);

// Starts to connect to the address of a frame. `done` runs at most once, perhaps at once. Returns
// what ends the attempt without waiting; it may be called after the attempt has ended.
using ConnectByFrame =
    std::function<std::function<void()>(const TokenFrame& frame, ConnectDone done)>;

// The client's end.
std::unique_ptr<Attachment> ConnectByToken(ConnectByFrame connect, AttachEvents events);

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_TOKEN_ATTACHMENT_H_
