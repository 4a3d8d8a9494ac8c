// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_PEER_SEGMENTS_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_PEER_SEGMENTS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "third_party/ar_grpc/fabric/remote_memory.h"
#include "third_party/ar_grpc/fabric/shm/attach.h"
#include "third_party/ar_grpc/fabric/shm/peer_socket.h"

namespace ar_grpc::fabric::shm {

// What one connection maps of its peer's memory at most, in segments and bytes of address space.
// Also what it announces, since a peer would take no more.
inline constexpr size_t kMostSegments = 64;
inline constexpr uint64_t kMostBytes = uint64_t{1} << 45;

// For reading; whoever has mapped the segment keeps it.
class ShmRegistration final : public Registration {
 public:
  ShmRegistration(std::shared_ptr<memory::Segment> segment, uint64_t offset, uint64_t size);
  const std::shared_ptr<memory::Segment>& segment() const override { return segment_; }
  uint64_t offset() const override { return offset_; }
  uint64_t size() const override { return size_; }

 private:
  const std::shared_ptr<memory::Segment> segment_;
  const uint64_t offset_;
  const uint64_t size_;
};

// A key: segment id, offset, size (8 bytes each). The segment's descriptor goes to the peer by
// the socket over which the ends attached, once for each segment and before its first key. The peer
// takes it when it meets the segment's number in a key. A peer that announces what it may not
// is heard no more: what it announced before stays good.
class PeerSegments final : public RemoteMemory {
 public:
  explicit PeerSegments(PeerSocket socket) : socket_(std::move(socket)) {}

  StatusOr<Key> Export(const std::shared_ptr<Registration>& registration) override;
  StatusOr<Lease> Find(const Key& key, uint64_t offset, size_t size) override;
  StatusOr<std::shared_ptr<uint8_t>> FindWritable(const Key&, uint64_t, size_t) override;

  // Takes an announcement; an error is the answer to all later ones.
  Status Take(const Packet& packet);

  int socket() const { return socket_.get(); }

 private:
  struct Mapped {
    std::shared_ptr<const uint8_t> data;
    uint64_t size = 0;
  };

  // These require mu_.
  Status Announce(const memory::Segment& segment);
  Status TakeLocked(const Packet& packet);
  void TakeAll();

  const PeerSocket socket_;
  std::mutex mu_;
  // Guarded by mu_.
  std::set<uint64_t> announced_;
  std::map<uint64_t, Mapped> mapped_;
  uint64_t mapped_bytes_ = 0;
  Status broken_;  // why nothing more is taken
};

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_PEER_SEGMENTS_H_
