// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_VERBS_ACCEPTOR_H_
#define THIRD_PARTY_AR_GRPC_VERBS_ACCEPTOR_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/verbs/link.h"
#include "third_party/ar_grpc/verbs/messages.h"

namespace ar_grpc::verbs {

// The sender's side of introductions: its end of each receiver's connection, in the making and
// then. A receiver is known by the token that it drew. Thread-safe.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  // Introductions at a time.
  static constexpr size_t kMostPending = 1024;
  using Answer = std::function<void(StatusOr<Introduced>)>;

  // `ended` runs when a link has ended and is not found here any more, holding no lock.
  Acceptor(fabric::Context* context, std::function<void(const Token& link)> ended)
      : context_(context), ended_(std::move(ended)) {}

  // Answers a receiver's call, soon: with the next frame, once the connection is made, or with
  // nothing where neither comes within kPatienceMs. `answer` runs once, on any thread.
  void Introduce(const verbs::Introduce& introduce, Answer answer);
  // Null: there is none of this name now.
  std::shared_ptr<Link> Find(const Token& link) const;
  // Ends all links that there are now.
  void EndLinks(const Status& why);
  // Likewise, and makes no more.
  void Close();

 private:
  class Pending;

  Status OnMade(const Token& name, StatusOr<std::unique_ptr<fabric::Connection>> connection);
  void OnEnded(const Token& name, const Link* link);
  // Takes this one out of pending_, after a while.
  void DropIn(int delay_ms, const Token& name, const std::shared_ptr<Pending>& pending);
  std::shared_ptr<Pending> FindPending(const Token& name, Status* why);

  fabric::Context* const context_;
  const std::function<void(const Token&)> ended_;
  mutable std::mutex mu_;
  // Guarded by mu_.
  bool closed_ = false;
  std::map<Token, std::shared_ptr<Pending>> pending_;
  std::map<Token, std::shared_ptr<Link>> links_;
};

}  // namespace ar_grpc::verbs

#endif  // THIRD_PARTY_AR_GRPC_VERBS_ACCEPTOR_H_
