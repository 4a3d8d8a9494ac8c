// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CONNECTION_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/bounce_pool.h"
#include "third_party/ar_grpc/fabric/verbs/flow_control.h"
#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"
#include "third_party/ar_grpc/fabric/verbs/stream_frame.h"

namespace ar_grpc::fabric::verbs {

inline constexpr Capabilities kCapabilities = {
    /*stream=*/true,
    /*get=*/true,
    /*put=*/true,
    /*map=*/false,
    /*inline_get=*/false,
    /*pins=*/true,
    /*crosses_network=*/true,
    /*stream_window=*/uint64_t{kDataWindow} * kFramePayload};

// A queue pair as a Connection. An access that the peer's device refuses (memory whose registration
// has ended, a key that nobody gave) gives kInvalidArgument, and breaks the connection: so do queue
// pairs.
class VerbsConnection final : public Connection {
 public:
  // `pair` is connected; `peer_seal` is of the keys that the peer gives.
  VerbsConnection(std::shared_ptr<QueuePair> pair, uint64_t peer_seal);
  ~VerbsConnection() override;

  Capabilities capabilities() const override { return kCapabilities; }

  StatusOr<size_t> Write(const iovec* parts, int count) override {
    return pair_->Write(parts, count);
  }
  StatusOr<size_t> Read(void* into, size_t size) override { return pair_->Read(into, size); }
  StatusOr<size_t> Readable() override { return pair_->Readable(); }
  StatusOr<bool> Post(const Message& message) override { return pair_->Post(message); }
  StatusOr<bool> Take(Message* message) override { return pair_->Take(message); }
  int wake_fd() const override { return pair_->wake_fd(); }
  void ClearWake() override { pair_->ClearWake(); }
  StatusOr<bool> ArmRead() override { return pair_->ArmRead(); }
  StatusOr<bool> ArmWrite() override { return pair_->ArmWrite(); }
  StatusOr<bool> ArmPost() override { return pair_->ArmPost(); }

  StatusOr<Key> Export(const std::shared_ptr<Registration>& registration) override;
  void Get(const Key& key, uint64_t offset, void* into, size_t size,
           std::shared_ptr<const void> keep, Done done) override;
  void Put(const Key& key, uint64_t offset, const void* from, size_t size,
           std::shared_ptr<const void> keep, Done done) override;
  StatusOr<Lease> Map(const Key& key, uint64_t offset, size_t size) override;
  void Progress() override { pair_->Progress(); }

  void Close(std::function<void()> done) override { pair_->Close(std::move(done)); }
  bool closed() const override { return pair_->closed(); }
  uint64_t stream_bytes_sent() const override { return pair_->stream_bytes_sent(); }
  uint64_t stream_bytes_received() const override { return pair_->stream_bytes_received(); }
  uint64_t get_bytes() const override { return pair_->get_bytes(); }

 private:
  // What Gets and Puts have in common.
  struct Transfer {
    int opcode;
    int local_access;
    Access remote_access;
    bool payload;
  };
  static constexpr Transfer kRead = {abi::kRdmaRead, abi::kAccessLocalWrite, Access::kRead, true};
  static constexpr Transfer kWrite = {abi::kRdmaWrite, 0, Access::kWrite, true};
  // A READ of our own.
  static constexpr Transfer kLookBack = {abi::kRdmaRead, abi::kAccessLocalWrite, Access::kRead,
                                         false};
  // Of the peer's memory, and as much of this process's.
  struct Range {
    const Key& key;
    uint64_t offset;
    const void* local;
    size_t size;
  };
  // What outlives the connection while an operation is under way.
  struct TwoEnds {
    std::shared_ptr<QueuePair> pair;
    std::shared_ptr<BouncePool> bounce;
    uint64_t peer_seal;
  };
  TwoEnds Ends() const { return {pair_, bounce_, peer_seal_}; }

  static void Start(const TwoEnds& ends, const Transfer& transfer, const Range& range,
                    std::shared_ptr<const void> keep, Done done);
  // Fills `operation` in, but for `keep` and `done`; no region where the range is not registered.
  static Status Prepare(const TwoEnds& ends, const Transfer& transfer, const Range& range,
                        Operation* operation);
  // Does a transfer whose local memory was refused to be registered by way of the pool. A WRITE
  // waits for a piece; a READ fails with `refused` where there is none, as who reads has other ways
  // (protocol/receiver.h).
  static void BounceRefused(const TwoEnds& ends, const Operation& transfer, const void* local,
                            Status refused, std::shared_ptr<const void> keep, Done done);
  static int LocalAccess(const Device& device, const Transfer& transfer);

  const std::shared_ptr<QueuePair> pair_;
  const std::shared_ptr<BouncePool> bounce_;
  const uint64_t peer_seal_;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CONNECTION_H_
