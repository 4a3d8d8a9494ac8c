// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_RECEIVER_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_RECEIVER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/figures.h"
#include "third_party/ar_grpc/protocol/link.h"
#include "third_party/ar_grpc/protocol/node.h"
#include "third_party/ar_grpc/protocol/one_sided_read.h"
#include "third_party/ar_grpc/protocol/rendezvous_messages.h"
#include "third_party/ar_grpc/protocol/write_gate.h"

namespace ar_grpc::protocol {

// How a receiver calls the sender. Thread-safe.
class ChunkCaller {
 public:
  // Where a chunk's bytes go: all of them between the gate's BeginWrite and EndWrite, or none.
  struct Target {
    uint8_t* into = nullptr;
    uint64_t size = 0;
    std::shared_ptr<WriteGate> gate;
  };
  virtual ~ChunkCaller() = default;
  // Starts a call for a chunk; `done` runs once, perhaps before this returns, on any thread but not
  // within the returned function. That cancels the call; it may be called at any time, also after
  // the call's end. `timeout_ms` 0: none of its own. Where the call cannot be started that is its
  // outcome.
  virtual std::function<void()> Start(const ChunkRequest& request, Target target,
                                      int64_t timeout_ms, std::function<void(Status)> done) = 0;
  // Starts a call that releases a ticket. `lost` runs where it may not have arrived, perhaps before
  // this returns, on any thread.
  virtual void Release(const ChunkRequest& request, std::function<void()> lost) = 0;
};

// The calls for the chunks of one transfer, to be cancelled together. Thread-safe.
class RunningCalls {
 public:
  // The number of a new call; 0 when no more is to be begun.
  uint64_t Begin();
  // The call runs, or has ended already; `cancel` cancels it.
  void Started(uint64_t call, std::function<void()> cancel);
  void Ended(uint64_t call);
  void Cancel();

 private:
  std::mutex mu_;
  // The rest is guarded by mu_.
  uint64_t last_ = 0;
  bool cancelled_ = false;
  std::map<uint64_t, std::function<void()>> running_;  // empty functions until Started
};

// One transfer's receiving end, from the question to the last byte: make one, send its ask(), and
// then Start it with what was offered, or GiveUp. Thread-safe in so far as Cancel may be called
// beside everything else.
class Receiver : public std::enable_shared_from_this<Receiver> {
 public:
  // How long a call may take for a chunk of bytes that could not be read as their link had ended: a
  // peer that has gone must not cost more.
  static constexpr int64_t kLateCallMs = 5000;

  struct Options {
    std::shared_ptr<Node> node;
    std::shared_ptr<ChunkCaller> caller;
    std::string task;               // the sender's, to be remembered with its node
    RunInPool run_in_pool;          // may be empty: all is done in the threads that call
    AllocateBounceBuffer allocate;  // may be empty: plain memory
    int most_copiers = kMaxCopiers;
    // Of a target that is the caller's, where more than this writes to it; may be empty.
    std::shared_ptr<WriteGate> gate;
    // Whether the sender stands still until the release comes, as that of a collective's buffer
    // does: then the release goes at once, not with the ReleaseBatch of the thread.
    bool sender_waits = false;
    // How calls fetch what cannot be read; without it, as the stream's figures say.
    std::optional<ChunkPlan> chunks;
  };
  static std::shared_ptr<Receiver> Create(Options options);

  // The question; its ticket is random, so that no other peer can guess and release it.
  const Ask& ask() const { return ask_; }

  // Brings in what was offered, releases it, and calls `done` once: perhaps before this returns, on
  // any thread, holding no lock, but never within Cancel, so that whoever cancels may hold locks.
  // By then no operation writes to `target` any more. kOk: `target` has the bytes. At most once.
  void Start(const Offer& offer, TargetBuffer target, std::function<void(Status)> done);

  // The request failed, or was answered with the bytes though it may have been asked twice:
  // whatever was or will be offered under the ticket is not wanted.
  void GiveUp();

  // Once it has returned, memory that is the caller's is not written to any more, and a transfer
  // that has not ended by then ends with kCancelled as soon as what is under way has ended: calls
  // are cancelled, reads are short or end with their connection. Not for a thread that writes.
  void Cancel();

 private:
  explicit Receiver(Options options);

  void Read(std::shared_ptr<Link> link, const Offer::Readable& from);
  void ReadEnded(const std::shared_ptr<Link>& link, const Status& status);
  // The figures by which the node chooses schemes for what goes over `link`, nullptr for TCP; or
  // assumed ones; never measures.
  Figures FiguresOf(const Link* link) const;
  ChunkPlan ChunksOverStream() const;
  // By calls; `late`: as the memory could not be read, because the peer may have gone.
  void FetchChunks(bool late);
  void StartChunk(uint64_t offset, uint64_t length, bool late, std::function<void(Status)> done);
  void ChunksEnded(bool late, const Status& status);
  // The release goes over `link`, which may be nullptr, or over another to `server`, or by a call.
  void Release(const std::shared_ptr<Link>& link, const NodeId& server);
  void ReleaseByCall(const NodeId& server, uint64_t ticket);
  void End(Status status);

  const Options options_;
  const Ask ask_;
  const std::shared_ptr<WriteGate> gate_;
  RunningCalls calls_;
  // Set by Start, before anything is under way.
  NodeId sender_{};
  TargetBuffer target_;
  std::function<void(Status)> done_;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_RECEIVER_H_
