// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CONNECTION_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"

namespace ar_grpc::fabric::verbs {

inline constexpr Capabilities kCapabilities = {false, true, true, false, false};

// One-sided access over a queue pair. There is no stream, so nothing tells an end that the other
// has closed: closed() becomes true with the first operation that fails, two seconds or a few after
// it was started. An access that the peer's device refuses (memory whose registration has ended, a
// key that nobody gave) gives kInvalidArgument, and breaks the connection: so do queue pairs.
class VerbsConnection final : public Connection {
 public:
  // `pair` is connected; `peer_seal` is of the keys that the peer gives.
  VerbsConnection(std::shared_ptr<QueuePair> pair, uint64_t peer_seal);
  ~VerbsConnection() override;

  Capabilities capabilities() const override { return kCapabilities; }

  StatusOr<size_t> Write(const iovec* parts, int count) override;
  StatusOr<size_t> Read(void* into, size_t size) override;
  StatusOr<size_t> Readable() override;
  StatusOr<bool> Post(const Message& message) override;
  StatusOr<bool> Take(Message* message) override;
  int wake_fd() const override { return -1; }
  void ClearWake() override {}
  StatusOr<bool> ArmRead() override;
  StatusOr<bool> ArmWrite() override;
  StatusOr<bool> ArmPost() override;

  StatusOr<Key> Export(const std::shared_ptr<Registration>& registration) override;
  void Get(const Key& key, uint64_t offset, void* into, size_t size,
           std::shared_ptr<const void> keep, Done done) override;
  void Put(const Key& key, uint64_t offset, const void* from, size_t size,
           std::shared_ptr<const void> keep, Done done) override;
  StatusOr<Lease> Map(const Key& key, uint64_t offset, size_t size) override;
  void Progress() override { pair_->Progress(); }

  void Close(std::function<void()> done) override { pair_->Close(std::move(done)); }
  bool closed() const override { return pair_->closed(); }
  uint64_t stream_bytes_sent() const override { return 0; }
  uint64_t stream_bytes_received() const override { return 0; }
  uint64_t get_bytes() const override { return pair_->get_bytes(); }

 private:
  // What the two have in common.
  struct Transfer {
    int opcode;
    int local_access;
    Access remote_access;
  };
  void Start(const Transfer& transfer, const Key& key, uint64_t offset, const void* local,
             size_t size, std::shared_ptr<const void> keep, Done done);
  // Fills `operation` in, but for `keep` and `done`.
  Status Prepare(const Transfer& transfer, const Key& key, uint64_t offset, const void* local,
                 size_t size, Operation* operation);

  const std::shared_ptr<QueuePair> pair_;
  const uint64_t peer_seal_;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CONNECTION_H_
