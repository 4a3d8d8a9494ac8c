// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_QUEUE_PAIR_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_QUEUE_PAIR_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/address.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"
#include "third_party/ar_grpc/fabric/verbs/frame.h"
#include "third_party/ar_grpc/fabric/verbs/memory_region.h"

namespace ar_grpc::fabric::verbs {

// A Get or a Put on its way.
struct Operation {
  int opcode = abi::kRdmaRead;
  uint64_t local = 0;
  uint64_t remote = 0;
  uint32_t rkey = 0;
  uint64_t size = 0;
  std::shared_ptr<MemoryRegion> region;  // has the local memory
  std::shared_ptr<const void> keep;
  Done done;

  // The queue pair's own.
  uint64_t posted = 0;     // bytes
  size_t outstanding = 0;  // requests
  bool ended = false;
  Status status;
};

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
  // Connects to the peer's. Waits for the kernel to find the peer's hardware address: up to a
  // second where nobody has it.
  Status Connect(const Device::Port& port, const Hello& peer);

  // Takes a whole operation; its `done` runs once, with no lock held.
  void Submit(std::shared_ptr<Operation> operation);
  // Ends what is complete, in this thread.
  void Progress();
  // kOk, or why it takes no more operations.
  Status Usable() const;
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // `done` runs on the reactor, or at once where all is over.
  void Close(std::function<void()> done);
  // Bytes that Gets brought here.
  uint64_t get_bytes() const { return get_bytes_.load(std::memory_order_relaxed); }

  void OnCompletions() override;
  void OnFailure(const std::string& what) override;

 private:
  // A posted request.
  struct Request {
    uint64_t id;
    uint64_t size;
    std::shared_ptr<Operation> operation;
  };
  using Operations = std::vector<std::shared_ptr<Operation>>;

  explicit QueuePair(std::shared_ptr<Device> device);
  Status Prepare();
  Status Modify(abi::QueuePair* pair, abi::QueuePairAttributes attributes, int set,
                const char* what);
  Status ModifyToConnected(abi::QueuePair* pair, const Device::Port& port, const Hello& peer);
  // Ends of operations, without the lock.
  static void Finish(const Operations& finished);

  // Takes at most `most` completions; returns how many it took.
  int Poll(int most);
  // These require mu_ and leave what has ended in `finished`.
  int TakeCompletions(int most, Operations* finished);
  void TakeCompletion(const abi::WorkCompletion& completion, Operations* finished);
  void Post(Operations* finished);
  int PostNext(Operation* operation);
  void EndIfOver(const std::shared_ptr<Operation>& operation, Operations* finished);
  void Fail(Status status, Operations* finished);
  void Stop(Operations* finished);

  void FinishClosing();
  // Destroys what the device has; on the reactor. All that is under way has ended then.
  void Destroy();
  void DestroySoon(int delay_ms);

  const std::shared_ptr<Device> device_;
  const uint32_t first_psn_;
  const uint64_t seal_;
  uint32_t number_ = 0;  // set by Prepare
  std::atomic<bool> closed_{false};
  std::atomic<uint64_t> get_bytes_{0};

  mutable std::mutex mu_;
  abi::QueuePair* pair_ = nullptr;         // nullptr once it is being destroyed
  abi::CompletionQueue* queue_ = nullptr;  // likewise
  bool connecting_ = false;                // pair_ is used without the lock
  bool stopped_ = false;                   // the pair takes no more requests and gives back its own
  bool closing_ = false;
  bool gone_ = false;  // the device has no part in it any more
  Status status_;
  uint64_t last_id_ = 0;
  std::deque<std::shared_ptr<Operation>> waiting_;
  std::deque<Request> posted_;
  std::vector<std::function<void()>> closers_;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_QUEUE_PAIR_H_
