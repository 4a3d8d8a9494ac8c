// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_VERBS_SENDER_H_
#define THIRD_PARTY_AR_GRPC_VERBS_SENDER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/verbs/acceptor.h"
#include "third_party/ar_grpc/verbs/messages.h"

namespace ar_grpc::verbs {

// The sender's side of all transfers of a server: it writes what receivers ask for, and holds what
// they have not enough room for yet. Thread-safe.
class Sender {
 public:
  explicit Sender(fabric::Context* context);
  ~Sender();
  Sender(const Sender&) = delete;

  // The bytes of a tensor, and who owns them.
  struct Source {
    const void* data = nullptr;
    uint64_t size = 0;
    std::shared_ptr<const void> keep;
  };
  // Runs once, holding no lock, on any thread; it must not block.
  using Answered = std::function<void(StatusOr<std::variant<Written, Held>> answer)>;

  void Introduce(const verbs::Introduce& introduce, Acceptor::Answer answer) {
    acceptor_->Introduce(introduce, std::move(answer));
  }
  // Writes the source where `ask` says, and answers when the device has done so; or holds it.
  // kUnavailable: the link has ended.
  void Answer(const Ask& ask, Source source, Answered answered);
  // Holds the source until it is fetched or dropped, or the link has ended; then its `keep` goes.
  StatusOr<Held> Hold(const Token& link, Source source);
  // What was asked for goes another way, or does not go.
  void Refuse(const Ask& ask);
  // Writes what is held. kNotFound: it is not held any more.
  void Serve(const Fetch& fetch, std::function<void(Status)> done);
  void Forget(const Drop& drop);

  // All of them; their receivers may introduce themselves again.
  void EndLinks(const Status& why) { acceptor_->EndLinks(why); }

  size_t held() const;

 private:
  using Name = std::pair<Token, uint64_t>;
  struct State {
    std::mutex mu;
    uint64_t last = 0;            // guarded by mu
    std::map<Name, Source> held;  // guarded by mu
  };

  // Outlives this where a link's end is under way.
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  const std::shared_ptr<Acceptor> acceptor_;
};

}  // namespace ar_grpc::verbs

#endif  // THIRD_PARTY_AR_GRPC_VERBS_SENDER_H_
