// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_VERBS_PEER_LINK_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_VERBS_PEER_LINK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/tensorflow/own_call.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"
#include "third_party/ar_grpc/verbs/introduction.h"

namespace ar_grpc {

// What a receiver of grpc+verbs knows of one peer: the link to it, which is made when it is first
// needed and when the last one has ended, and how large its tensors were. Makes the channel's own
// calls to it. Thread-safe.
class VerbsPeerLink : public std::enable_shared_from_this<VerbsPeerLink> {
 public:
  using Known = std::function<void(const StatusOr<verbs::NamedLink>&)>;

  VerbsPeerLink(fabric::Context* context, std::shared_ptr<const TensorCaller> caller)
      : context_(context), caller_(std::move(caller)) {}

  const std::string& target() const { return caller_->target; }

  // Calls `known` with the link, or why there is none, perhaps before it returns.
  void WhenKnown(Known known);

  // Makes a call (own_call.h); kUnavailable once Close has been called.
  template <typename Message>
  void Call(const Message& message, uint64_t size,
            std::function<void(const Status&, const std::string& answer)> done) {
    {
      // Under the lock: once Close has it, no call may be made.
      std::lock_guard<std::mutex> lock(mu_);
      if (!closed_) return MakeOwnCall(*caller_, message, size, std::move(done));
    }
    done(Closed(), "");
  }

  // The same, where the answer is its status alone.
  template <typename Message>
  void Tell(const Message& message, std::function<void(Status)> answered) {
    Call(message, 0, [answered = std::move(answered)](const Status& status, const std::string&) {
      answered(status);
    });
  }

  // Ends the link. To be called while calls can be made; none are made after it.
  void Close();

  // The size of the last tensor of this rendezvous key; 0: not known.
  uint64_t RoomFor(const std::string& key);
  void Remember(const std::string& key, uint64_t size);

 private:
  static constexpr size_t kMostSizes = 16384;

  static Status Closed() {
    return Status(StatusCode::kUnavailable, "this end receives nothing any more");
  }
  void Make();
  void OnMade(const StatusOr<verbs::NamedLink>& made);
  // Lets the memory of a link that has ended go now, and not only when the next one is made. It is
  // deregistered here, milliseconds.
  void OnEnded();

  fabric::Context* const context_;
  const std::shared_ptr<const TensorCaller> caller_;
  std::mutex mu_;
  // Guarded by mu_.
  bool closed_ = false;
  std::optional<verbs::NamedLink> link_;
  std::vector<Known> waiting_;  // not empty: a link is being made
  std::unordered_map<std::string, uint64_t> sizes_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_VERBS_PEER_LINK_H_
