// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_RING_CONNECTION_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_RING_CONNECTION_H_

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/doorbell.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/remote_memory.h"
#include "third_party/ar_grpc/fabric/ring.h"

// A Connection over memory that both ends have mapped: loopback's and shm's. One-sided operations
// are copies by the calling thread.
namespace ar_grpc::fabric {

// Bytes of stream that a direction holds. Large enough that what TensorFlow says beside its tensors
// passes without the writer ever sleeping, and that both halves of a longer transfer are copied at
// the same time; small enough to stay in a core's cache.
inline constexpr size_t kRingBytes = size_t{1} << 20;
// What is accepted from a peer; of these only the pages that are touched take memory.
inline constexpr size_t kSmallestRingBytes = size_t{1} << 12;
inline constexpr size_t kLargestRingBytes = size_t{1} << 30;

inline constexpr size_t kMessageSlots = 256;
inline constexpr size_t kMessageBytes = kMessageSlots * Message::kSize;

// Bytes of memory that a connection with such rings takes. All zeros at first.
size_t ConnectionBytes(size_t ring_bytes);

enum class RingEnd { kConnector = 0, kAcceptor = 1 };

// At the start of the shared memory; the rings' data follows a page later: the stream of each
// direction, then the messages of each. Index 0 is what the connector sends, 1 the acceptor.
struct ConnectionHeader {
  RingControl bytes[2];
  RingControl messages[2];
  alignas(RingControl::kApart) std::atomic<uint32_t> closed[2];
};

class RingConnection final : public Connection {
 public:
  struct Parts {
    std::shared_ptr<uint8_t> memory;  // ConnectionBytes(ring_bytes) of them
    size_t ring_bytes = kRingBytes;
    RingEnd end = RingEnd::kConnector;
    std::unique_ptr<Doorbell> doorbell;
    // Without it there is a stream and nothing else.
    std::shared_ptr<RemoteMemory> remote;
    bool put = false;
    // Common to both ends where they are one process's: then Close waits for the peer's operations.
    std::shared_ptr<Operations> operations = std::make_shared<Operations>();
  };

  explicit RingConnection(Parts parts);
  ~RingConnection() override { Close(nullptr); }

  Capabilities capabilities() const override;

  StatusOr<size_t> Write(const iovec* parts, int count) override;
  StatusOr<size_t> Read(void* into, size_t size) override;
  StatusOr<size_t> Readable() override;
  StatusOr<bool> Post(const Message& message) override;
  StatusOr<bool> Take(Message* message) override;
  int wake_fd() const override { return parts_.doorbell->fd(); }
  void ClearWake() override { parts_.doorbell->Clear(); }
  StatusOr<bool> ArmRead() override;
  StatusOr<bool> ArmWrite() override;
  StatusOr<bool> ArmPost() override;
  StatusOr<Key> Export(const std::shared_ptr<Registration>& registration) override;
  void Get(const Key& key, uint64_t offset, void* into, size_t size,
           std::shared_ptr<const void> keep, Done done) override;
  void Put(const Key& key, uint64_t offset, const void* from, size_t size,
           std::shared_ptr<const void> keep, Done done) override;
  StatusOr<Lease> Map(const Key& key, uint64_t offset, size_t size) override;
  void Progress() override {}  // an operation is over when its call returns
  void Close(std::function<void()> done) override;
  bool closed() const override { return !Open().ok(); }
  uint64_t stream_bytes_sent() const override { return sent_.load(std::memory_order_relaxed); }
  uint64_t stream_bytes_received() const override {
    return received_.load(std::memory_order_relaxed);
  }
  uint64_t get_bytes() const override { return got_.load(std::memory_order_relaxed); }

 private:
  RingView View(bool sends, bool messages) const;
  // kOk unless something broke, or this is a fork's copy of the parent's connection.
  Status Usable() const;
  // kOk unless either end closed.
  Status Open() const;
  // kOk when one-sided access is possible now.
  Status Accessible() const;
  Status CheckedGet(const Key& key, uint64_t offset, void* into, size_t size);
  Status CheckedPut(const Key& key, uint64_t offset, const void* from, size_t size);
  // Makes `status` the answer to every later call.
  Status Break(Status status);

  const Parts parts_;
  ConnectionHeader* const header_;
  const uint32_t fork_count_;
  RingWriter sends_;
  RingWriter posts_;
  RingReader reads_;
  RingReader takes_;
  std::atomic<bool> closed_{false};
  std::atomic<bool> is_broken_{false};
  mutable std::mutex mu_;
  Status broken_;  // guarded by mu_
  std::atomic<uint64_t> sent_{0};
  std::atomic<uint64_t> received_{0};
  std::atomic<uint64_t> got_{0};
};

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_RING_CONNECTION_H_
