// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_VERBS_RECEIVE_H_
#define THIRD_PARTY_AR_GRPC_VERBS_RECEIVE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/verbs/introduction.h"
#include "third_party/ar_grpc/verbs/link.h"
#include "third_party/ar_grpc/verbs/messages.h"

namespace ar_grpc::verbs {

// The receiver's side of one transfer. Its owner makes the calls: it asks with what Begin gives,
// and hands the answer to one of the On functions. Thread-safe.
class Receive : public std::enable_shared_from_this<Receive> {
 public:
  // The bytes, in memory of the link's landing that is this transfer's as long as `block` lives.
  struct Arrived {
    std::shared_ptr<LandingPool::Block> block;
    uint64_t size = 0;
  };
  // Runs once after OnWritten or OnHeld, on any thread, holding no lock. It must not block.
  using Done = std::function<void(StatusOr<Arrived> arrived)>;
  // Make the calls; their `answered` runs once, with the sender's status. A drop that fails is made
  // again, and ends the link at last: else the sender would hold the tensor, and this end what it
  // offered, for as long as it lives.
  using FetchCall = std::function<void(const Fetch& fetch, std::function<void(Status)> answered)>;
  using DropCall = std::function<void(const Drop& drop, std::function<void(Status)> answered)>;

  Receive(NamedLink link, FetchCall fetch, DropCall drop, Done done)
      : link_(std::move(link)),
        fetch_(std::move(fetch)),
        drop_(std::move(drop)),
        done_(std::move(done)) {}

  // `room`: the bytes that are expected; 0: not known. It is offered where it is to be had at once.
  Ask Begin(uint64_t room);

  // The sender has written what was asked for; its note may have come, or is on its way.
  void OnWritten(const Written& written);
  // There was too little room. May wait milliseconds, for more memory to be registered.
  void OnHeld(const Held& held);
  // What was asked for comes another way, or not at all; also where the request was never made.
  // Where `status` is kUnavailable the sender's process may be gone, or know the link no more: then
  // the drop fails, too, and ends the link. It does not if this was an error of the program there.
  void OnOther(const Status& status);
  // Ends it with kCancelled, unless it has ended. The owner ends its calls.
  void Cancel();

 private:
  // Lets the peer write to `block`, for this transfer.
  StatusOr<Destination> Offer(uint64_t transfer, std::shared_ptr<LandingPool::Block> block);
  static constexpr int kDropTries = 5;
  static constexpr int kDropAgainMs = 1000;

  bool Wanted();
  void OnNote(uint64_t transfer, StatusOr<uint64_t> written);
  // `offered`: the transfer whose room this end wants back. `why`: the outcome of the call before.
  void Drop(uint64_t offered, const Status& why = Status());
  static void MakeDrop(const DropCall& call, const std::shared_ptr<Link>& link,
                       const verbs::Drop& drop, int tries);
  // Nobody waits for what was offered last.
  void GiveUp();
  void EndIfComplete();
  void End(StatusOr<Arrived> arrived);

  const NamedLink link_;
  const FetchCall fetch_;
  const DropCall drop_;
  std::mutex mu_;
  // Guarded by mu_.
  Done done_;              // empty: it has ended
  uint64_t asked_ = 0;     // set by Begin
  uint64_t transfer_ = 0;  // whose note counts: of what was asked, or of what is fetched
  std::shared_ptr<LandingPool::Block> block_;
  std::optional<StatusOr<uint64_t>> note_;
  std::optional<uint64_t> answered_;  // how much the sender says
};

}  // namespace ar_grpc::verbs

#endif  // THIRD_PARTY_AR_GRPC_VERBS_RECEIVE_H_
