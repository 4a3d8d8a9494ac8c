// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_VERBS_SENDER_H_
#define THIRD_PARTY_AR_GRPC_VERBS_SENDER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/verbs/acceptor.h"
#include "third_party/ar_grpc/verbs/messages.h"

namespace ar_grpc::verbs {

// The sender's side of all transfers of a server: it writes what receivers ask for, and holds what
// they have not enough room for yet. What a receiver once offered is written to once at most, in
// whatever order its calls come and however often: by then it may be another transfer's.
// Thread-safe; no call may be under way when it is destroyed.
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
  // Writes the source where `ask` says, and answers when the device has done so; or holds it. A
  // request that is made again meanwhile is answered when the first one is.
  // kUnavailable: the link has ended; kAborted: it was dropped, or is being fetched.
  void Answer(const Ask& ask, Source source, Answered answered);
  // Holds the source until it is fetched or dropped, or the link has ended; then its `keep` goes.
  StatusOr<Held> Hold(const Ask& ask, Source source);
  // What was asked for goes another way, or does not go.
  void Refuse(const Ask& ask) {
    if (!ask.destination.has_value()) return;
    // Where the link is not known nothing is written over it.
    static_cast<void>(Drop({ask.link, ask.transfer, ask.transfer}));
  }
  // Writes what is held. A fetch that is made again has the first one's answer. kNotFound: it is
  // not held any more.
  void Serve(const Fetch& fetch, std::function<void(Status)> done);
  // Lets go what is held, and tells the receiver that nothing is written to what it offered unless
  // that is just being done, also where the request comes later. kUnavailable: it does not know the
  // link, so the receiver's end of it leads nowhere.
  Status Drop(const verbs::Drop& drop);
  // All of them; their receivers may introduce themselves again.
  void EndLinks(const Status& why) { acceptor_->EndLinks(why); }

  // Transfers.
  size_t held() const;

 private:
  // Those that are over are remembered, the last ones.
  static constexpr size_t kMostOver = 16384;
  using Name = std::pair<Token, uint64_t>;
  enum class Stage { kHeld, kWriting, kWritten, kDropped };
  struct Transfer {
    Stage stage = Stage::kHeld;
    Source source;  // kHeld's
    uint64_t size = 0;
    std::vector<Answered> again;  // kWriting's, besides the first one
    uint64_t fetched = 0;         // the transfer under which it is fetched; 0: it is not
  };
  struct State {
    std::mutex mu;
    std::map<Name, Transfer> transfers;  // guarded by mu
    std::deque<Name> over;               // likewise: kWritten and kDropped, the oldest first
  };

  // Whether the transfer's link has ended meanwhile; then nothing of the transfer is left.
  bool Gone(const Name& name);
  // Requires mu of `state`. Who is to be answered, besides the first one.
  static std::vector<Answered> End(State* state, const Name& name, Stage stage);
  // Writes, and records the end under `name`, of what was asked for. The note is `transfer`'s.
  void Write(const std::shared_ptr<Link>& link, const Name& name, uint64_t transfer,
             const Destination& destination, Source source, std::function<void(Status)> done);

  // Outlives this where a link's end is under way.
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  const std::shared_ptr<Acceptor> acceptor_;
};

}  // namespace ar_grpc::verbs

#endif  // THIRD_PARTY_AR_GRPC_VERBS_SENDER_H_
