// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_QUEUE_PAIR_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_QUEUE_PAIR_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/address.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"
#include "third_party/ar_grpc/fabric/verbs/frame.h"
#include "third_party/ar_grpc/fabric/verbs/frame_stream.h"
#include "third_party/ar_grpc/fabric/verbs/memory_region.h"
#include "third_party/ar_grpc/fabric/verbs/send_queue.h"

namespace ar_grpc::fabric::verbs {

// A reliable connection of a device: a queue pair with completion queues of its own, one for what
// is sent and one for what comes, so that who waits for the stream never runs another operation's
// end. None can overrun: no more requests are posted than each holds. Operations wait here in
// order; frames pass them, as their number is bounded by credits (flow_control.h). Thread-safe.
//
// It lives until the device has no part in it any more; the reactor destroys what the device has.
class QueuePair final : public EventTarget, public std::enable_shared_from_this<QueuePair> {
 public:
  static StatusOr<std::shared_ptr<QueuePair>> Create(std::shared_ptr<Device> device);
  ~QueuePair() override;

  const std::shared_ptr<Device>& device() const { return device_; }
  // Of the keys that this end gives; random.
  uint64_t seal() const { return seal_; }
  // What the peer has to know of it.
  Hello Describe(const Device::Port& port) const;
  // Connects to the peer's; waits as ConnectTo does.
  Status Connect(const Device::Port& port, const Hello& peer);

  // Over iWARP, in place of Connect; queue_pair_iwarp.cc. Once it has begun, nothing of the pair is
  // destroyed until EndConnecting, which gives the pair what it is connected by, held until it is
  // destroyed, or nothing. The peer serves `reads` at once. An error: it is closed.
  uint32_t number() const { return number_; }
  Status BeginConnecting(uint8_t reads);
  Status EndConnecting(std::shared_ptr<const void> link);
  // The client's end sends the first frame, which says nothing, once the server's end is connected:
  // what comes through shows that the device's way there and back is open, and over iWARP the
  // server must not send before. `answered` runs once the peer's device has the frame, and `heard`
  // once this end has the peer's first one; both once, on the reactor, also when the pair fails.
  // They are dropped with the pair, and by one that has failed already: Usable says why.
  Status Greet(std::function<void()> answered = nullptr);
  void WhenHeard(std::function<void()> heard);
  // The peer's end has gone; what it sent before is taken first.
  void OnDisconnected();

  // Takes a whole operation; its `done` runs once, with no lock held.
  void Submit(std::shared_ptr<Operation> operation);
  // Ends what is complete, in this thread.
  void Progress();
  // kOk, or why it takes no more operations.
  Status Usable() const;
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // As fabric::Connection's; queue_pair_stream.cc.
  StatusOr<size_t> Write(const iovec* parts, int count);
  StatusOr<size_t> Read(void* into, size_t size);
  StatusOr<size_t> Readable();
  StatusOr<bool> Post(const Message& message);
  StatusOr<bool> Take(Message* message);
  StatusOr<bool> ArmRead();
  StatusOr<bool> ArmWrite();
  StatusOr<bool> ArmPost();
  int wake_fd() const { return wake_.get(); }
  void ClearWake() const { ClearWakeUp(wake_.get()); }
  uint64_t stream_bytes_sent() const { return sent_bytes_.load(std::memory_order_relaxed); }
  uint64_t stream_bytes_received() const { return read_bytes_.load(std::memory_order_relaxed); }

  // The peer is told first, after what was written. `done` runs after the device has given up the
  // pair and every operation's `done` has returned: on the thread that was last in this, or at once
  // where all is over.
  void Close(std::function<void()> done);
  // Bytes that Gets brought here.
  uint64_t get_bytes() const { return get_bytes_.load(std::memory_order_relaxed); }

  void OnCompletions(abi::CompletionQueue* queue) override;
  void OnFailure(const std::string& what) override;
  // Without its own address a pair of RoCE has nowhere to send from. Some devices say so when they
  // send next, but Soft-RoCE never where an earlier request waits for its answer (Linux 6.1,
  // rxe_req.c: the pair is in error, and its timer is not started again).
  void OnGidChange(const std::vector<abi::GidEntry>& table) override;

 private:
  explicit QueuePair(std::shared_ptr<Device> device);
  Status Prepare();

  // Runs `section` with the lock, and then, without it, the ends of the operations which that left
  // in its argument.
  template <typename Section>
  void Locked(Section section);
  void Finish(const Operations& ended);

  // Runs `section` with the lock, and leaves what has ended to the reactor: for callers that hold
  // locks of their own, which an operation's end may take.
  template <typename Section>
  void LockedEndsLater(Section section);

  // Completions of a queue that are taken at once: the reactor, or the next look, comes for more.
  static constexpr int kRound = 64;
  // Takes a round of completions of both queues; whether either may have more.
  bool Poll();
  void PollSoon();
  // These require mu_ and leave what has ended in `ended`.
  int TakeSent(Operations* ended);
  void TakeCompletion(const abi::WorkCompletion& completion, Operations* ended);
  int TakeReceived(Operations* ended);
  void TakeFrame(const abi::WorkCompletion& completion, Operations* ended);
  // An event of each: what completes from here on, and what has not been seen completed yet.
  void Arm(abi::CompletionQueue* queue, Operations* ended);
  // false: it was armed already.
  bool ArmSent(Operations* ended);
  // Arms the queue of what is sent where somebody waits for what it says. Else frames are posted
  // without anybody to hear of their end, and whoever comes next looks.
  void AwaitAnswers(Operations* ended);
  std::string TextOf(const abi::WorkCompletion& completion) const;
  void Post(Operations* ended);
  // Gives a part of an operation, or a frame, to the device.
  bool PostRequest(const SendQueue::Request& request, Operations* ended);
  bool PostFrame(uint32_t buffer, FrameKind kind, size_t payload, Operations* ended);
  void PostReceives(Operations* ended);
  int PostReceive(uint32_t index);
  // Sends credits that are due, wakes who waits for what there is now, and has buffers added that
  // the stream wants.
  void Advance(Operations* ended);
  void Heard();
  void Answered();
  // Of the buffers' memory.
  uint32_t LkeyOf(const uint8_t* buffer) const;
  void Fail(const std::string& why, Operations* ended);
  void FailPosting(int error, Operations* ended);
  void End(Status why, Operations* ended);
  void StopPair(Operations* ended);
  void CloseInOrder(Operations* ended);

  // Buffers that are added when the stream wants them: registered in a thread of their own, as that
  // takes milliseconds with some devices. Where they are refused, it goes on with those it has.
  struct Growth {
    BufferRange range;
    void (FrameStream::*add)();
    bool asked = false;
    std::chrono::steady_clock::time_point not_before{};
  };
  // Requires mu_.
  void GrowSoon();
  void GrowSoon(Growth* growth);
  void Grow(Growth* growth);

  // Destroys what the device has; on the reactor. All that is under way has ended then.
  void Destroy();
  bool DestroyPair(abi::QueuePair* pair);
  void DestroySoon(int delay_ms);

  const std::shared_ptr<Device> device_;
  const uint32_t first_psn_;
  const uint64_t seal_;
  uint32_t number_ = 0;        // set by Prepare
  uint32_t inline_bytes_ = 0;  // likewise: frames up to this need no look at their buffer
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> get_bytes_{0};
  std::atomic<uint64_t> sent_bytes_{0};
  std::atomic<uint64_t> read_bytes_{0};
  UniqueFd wake_;
  // Shared memory, of which a fork makes no copy that either process would then write to alone.
  // Only what is registered has pages.
  std::shared_ptr<uint8_t> buffers_;

  mutable std::mutex mu_;
  abi::QueuePair* pair_ = nullptr;        // nullptr while it is being destroyed, and after that
  abi::CompletionQueue* sent_ = nullptr;  // nullptr after that
  abi::CompletionQueue* received_ = nullptr;
  std::vector<std::shared_ptr<MemoryRegion>> regions_;  // of buffers_; until the pair is destroyed
  std::optional<FrameStream> stream_;                   // set by Prepare
  Growth more_sends_ = {kLaterSendBuffers, &FrameStream::AddSendBuffers};
  Growth more_receives_ = {kLaterReceiveBuffers, &FrameStream::AddReceiveBuffers};
  bool connected_ = false;
  std::optional<NetworkName> own_name_;  // RoCE's, once it connects
  std::shared_ptr<const void> link_;
  std::function<void()> heard_;
  std::function<void()> answered_;
  bool read_armed_ = false;
  bool write_armed_ = false;
  bool post_armed_ = false;
  bool close_sent_ = false;
  bool sent_armed_ = false;
  bool connecting_ = false;  // pair_ is used without the lock
  int growing_ = 0;          // so are buffers_, to be registered
  bool stopped_ = false;     // the pair takes no more requests and gives back its own
  bool closing_ = false;
  bool gone_ = false;        // the device has no part in it any more
  size_t finishing_ = 0;     // operations that have ended and whose `done` has not returned
  bool complained_ = false;  // about a pair that cannot be destroyed
  Status status_;
  SendQueue sends_;
  std::vector<std::function<void()>> closers_;
};

template <typename Section>
void QueuePair::Locked(Section section) {
  // An operation's `done` may destroy the connection, and the reactor then the device's reference.
  const std::shared_ptr<QueuePair> self = shared_from_this();
  Operations ended;
  {
    std::lock_guard<std::mutex> lock(mu_);
    section(&ended);
    finishing_ += ended.size();
  }
  Finish(ended);
}

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_QUEUE_PAIR_H_
