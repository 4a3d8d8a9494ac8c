// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_QUEUE_PAIR_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_QUEUE_PAIR_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"
#include "third_party/ar_grpc/fabric/verbs/frame.h"
#include "third_party/ar_grpc/fabric/verbs/send_queue.h"

namespace ar_grpc::fabric::verbs {

// A reliable connection of a device: a queue pair with a completion queue of its own, which cannot
// overrun: no more requests are posted than either holds, the others wait here in order.
// Thread-safe.
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

  // Takes a whole operation; its `done` runs once, with no lock held.
  void Submit(std::shared_ptr<Operation> operation);
  // Ends what is complete, in this thread.
  void Progress();
  // kOk, or why it takes no more operations.
  Status Usable() const;
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // `done` runs after the device has given up the pair and every operation's `done` has returned:
  // on the thread that was last in this, or at once where all is over.
  void Close(std::function<void()> done);
  // Bytes that Gets brought here.
  uint64_t get_bytes() const { return get_bytes_.load(std::memory_order_relaxed); }

  void OnCompletions() override;
  void OnFailure(const std::string& what) override;

 private:
  explicit QueuePair(std::shared_ptr<Device> device);
  Status Prepare();

  // Runs `section` with the lock, and then, without it, the ends of the operations which that left
  // in its argument.
  template <typename Section>
  void Locked(Section section);
  void Finish(const Operations& ended);

  // Takes at most `most` completions; returns how many it took.
  int Poll(int most);
  // These require mu_ and leave what has ended in `ended`.
  int TakeCompletions(int most, Operations* ended);
  void TakeCompletion(const abi::WorkCompletion& completion, Operations* ended);
  void Post(Operations* ended);
  int PostOne(const SendQueue::Request& request);
  void Fail(const std::string& why, Operations* ended);
  void StopPair(Operations* ended);

  // Destroys what the device has; on the reactor. All that is under way has ended then.
  void Destroy();
  bool DestroyPair(abi::QueuePair* pair);
  void DestroySoon(int delay_ms);

  const std::shared_ptr<Device> device_;
  const uint32_t first_psn_;
  const uint64_t seal_;
  uint32_t number_ = 0;  // set by Prepare
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> get_bytes_{0};

  mutable std::mutex mu_;
  abi::QueuePair* pair_ = nullptr;         // nullptr while it is being destroyed, and after that
  abi::CompletionQueue* queue_ = nullptr;  // nullptr after that
  bool connecting_ = false;                // pair_ is used without the lock
  bool stopped_ = false;                   // the pair takes no more requests and gives back its own
  bool closing_ = false;
  bool gone_ = false;        // the device has no part in it any more
  size_t finishing_ = 0;     // operations that have ended and whose `done` has not returned
  bool complained_ = false;  // about a pair that cannot be destroyed
  Status status_;
  SendQueue sends_;
  std::vector<std::function<void()>> closers_;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_QUEUE_PAIR_H_
