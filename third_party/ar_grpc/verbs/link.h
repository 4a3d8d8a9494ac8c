// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_VERBS_LINK_H_
#define THIRD_PARTY_AR_GRPC_VERBS_LINK_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/verbs/landing_pool.h"
#include "third_party/ar_grpc/verbs/messages.h"

namespace ar_grpc::verbs {

// What all links of a process have moved.
struct Counts {
  std::atomic<uint64_t> written{0};     // bytes of WRITEs that have ended well
  std::atomic<uint64_t> received{0};    // bytes that notes said were written
  std::atomic<uint64_t> links{0};       // that have not ended
  std::atomic<uint64_t> kept_bytes{0};  // of blocks whose transfer nobody waits for any more
};
Counts& AllCounts();

// One end of an RDMA connection between two servers: the sender writes into memory of the
// receiver's and sends a note behind it, which is what WRITE_WITH_IMM does by one request; but
// iWARP has none, and a note has room for a name of 64 bits. Notes are taken on the reactor, which
// sleeps until the device wakes it. Thread-safe.
//
// Memory that a peer was told of is never given back before that peer has said it is through with
// it, or the device has given up the connection: nobody can recall a WRITE.
class Link : public std::enable_shared_from_this<Link> {
 public:
  // Between two signs of life; and so many of this end's own without one of the peer's end the
  // link. A device that cannot send is silent about it: Soft-RoCE has no timer for what it has not
  // sent.
  static constexpr int kBeatMs = 5000;
  static constexpr int kMostSilent = 6;
  // More bytes of blocks whose transfers were given up kMostSilent beats ago end the link, and free
  // them. A peer needs a moment to hear of it, and the WRITE of a large tensor takes its time:
  // until then the link's other transfers are not to suffer for it, unless more than
  // kMostKeptAtOnce waits.
  static constexpr uint64_t kMostKept = uint64_t{256} << 20;
  static constexpr uint64_t kMostKeptAtOnce = uint64_t{4} << 30;
  // kOk: so many bytes were written; kAborted: the sender does not write them; kUnavailable: the
  // connection has ended. Runs once, holding no lock, on any thread; it must not block.
  using Noted = std::function<void(StatusOr<uint64_t> written)>;
  // Holding no lock, on any thread; it must not block.
  using Done = std::function<void(Status)>;

  // `ended` runs once, when the device has given up the connection, holding no lock.
  static StatusOr<std::shared_ptr<Link>> Start(std::unique_ptr<fabric::Connection> connection,
                                               std::shared_ptr<LandingPool> landing,
                                               std::function<void()> ended, int beat_ms = kBeatMs);
  ~Link();
  Link(const Link&) = delete;

  const std::shared_ptr<LandingPool>& landing() const { return landing_; }
  // kOk, or why nothing can be moved over it any more.
  Status status() const;

  // --- the receiver's end ---

  // A name for a transfer, not 0.
  uint64_t NewTransfer() { return ++last_transfer_; }
  // Lets the peer write to `block`, which it is to be told of; `noted` tells what became of it.
  StatusOr<Destination> Expect(uint64_t transfer, std::shared_ptr<LandingPool::Block> block,
                               Noted noted);
  // Nobody waits any more, and `noted` does not run unless it runs now. The block stays taken until
  // the peer has said that it is through with it. false: it has said so.
  bool Forget(uint64_t transfer);
  // The peer is known not to write, and to send no note.
  void Release(uint64_t transfer);

  // --- the sender's end ---

  // Writes `size` bytes, and the note; `done` runs when the device has written them. `keep` owns
  // them, and is held until then. What does not fit into `destination` is kInvalidArgument.
  void Write(uint64_t transfer, const Destination& destination, const void* from, uint64_t size,
             std::shared_ptr<const void> keep, Done done);
  // Tells the peer that nothing is written for `transfer`.
  void Refuse(uint64_t transfer);

  // --- the end ---

  // Ends it for both ends; transfers end with kUnavailable and `why`.
  void End(const Status& why);

 private:
  struct Expected {
    std::shared_ptr<LandingPool::Block> block;
    Noted noted;         // empty: nobody waits
    int kept_beats = 0;  // since nobody does
  };

  Link(std::shared_ptr<LandingPool> landing, std::function<void()> ended, int beat_ms)
      : landing_(std::move(landing)), beat_ms_(beat_ms), ended_(std::move(ended)) {
    ++AllCounts().links;
  }

  void Send(const Note& note);
  // Shows the peer that this end lives, now and then, and looks whether the peer does: an end that
  // only waits would not learn that the other one's host has gone.
  void Beat();
  // Counts a beat of what is kept. true: too much of it has been kept for too long.
  bool KeepsTooMuch();
  // On the reactor.
  void Turn();
  // Sends what is due; `*waits`: there was no room for all of it.
  Status SendNotes(bool* waits);
  // Takes a round of those that have come; `*more`: there may be others.
  Status TakeNotes(bool* more);
  Status TakeNote(const Note& note);
  // Requires mu_.
  Expected TakeOut(std::map<uint64_t, Expected>::iterator found);
  void OnGone();

  const std::shared_ptr<LandingPool> landing_;
  const int beat_ms_;
  std::function<void()> ended_;  // until OnGone
  std::atomic<uint64_t> last_transfer_{0};
  // Since the last note, of any kind. A process that was stopped for long counts it as one.
  std::atomic<int> silent_beats_{0};
  std::unique_ptr<fabric::Connection> connection_;
  mutable std::mutex mu_;
  // Guarded by mu_.
  Status status_;
  std::map<uint64_t, Expected> expected_;
  uint64_t kept_bytes_ = 0;
  std::deque<fabric::Message> notes_;  // to be sent
  bool turning_ = false;               // a Turn is due
};

}  // namespace ar_grpc::verbs

#endif  // THIRD_PARTY_AR_GRPC_VERBS_LINK_H_
