// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/peer_segments.h"

#include <optional>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/wire.h"
#include "third_party/ar_grpc/fabric/shm/mapped_segments.h"

namespace ar_grpc::fabric::shm {
namespace {

struct Named {
  uint64_t segment = 0;
  uint64_t offset = 0;
  uint64_t size = 0;
};

StatusOr<Named> DecodeKey(const Key& key) {
  Reader reader(key);
  Named named;
  if (reader.Get(&named.segment) && reader.Get(&named.offset) && reader.Get(&named.size) &&
      reader.AtEnd()) {
    return named;
  }
  return Status(StatusCode::kInvalidArgument, "not a shared-memory key");
}

}  // namespace

ShmRegistration::ShmRegistration(std::shared_ptr<memory::Segment> segment, uint64_t offset,
                                 uint64_t size)
    : segment_(std::move(segment)), offset_(offset), size_(size) {}

StatusOr<Key> PeerSegments::Export(const std::shared_ptr<Registration>& registration) {
  const auto ours = std::dynamic_pointer_cast<ShmRegistration>(registration);
  if (!ours) return Status(StatusCode::kInvalidArgument, "a registration of another context");
  const memory::Segment& segment = *ours->segment();
  if (!segment.Shareable()) {
    return Status(StatusCode::kFailedPrecondition, "the memory is the parent process's");
  }
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (Status status = Announce(segment); !status.ok()) return status;
  }
  Writer key;
  key.Put(segment.id());
  key.Put(ours->offset());
  key.Put(ours->size());
  return key.Take();
}

Status PeerSegments::Announce(const memory::Segment& segment) {
  if (announced_.count(segment.id()) > 0) return Status();
  if (announced_.size() == kMostSegments) {
    return Status(StatusCode::kResourceExhausted,
                  "a connection's peer maps at most " + std::to_string(kMostSegments) +
                      " segments: register parts of fewer and larger ones");
  }
  Announcement announcement;
  announcement.segment = segment.id();
  announcement.bytes = segment.size();
  Status status = SendPacket(socket_.get(), Encode(announcement), {segment.read_only_fd()});
  if (status.ok()) announced_.insert(segment.id());
  return status;
}

StatusOr<Lease> PeerSegments::Find(const Key& key, uint64_t offset, size_t size) {
  const StatusOr<Named> named = DecodeKey(key);
  if (!named.ok()) return named.status();
  if (Status status = CheckRange(offset, size, named->size, "the peer's registration");
      !status.ok()) {
    return status;
  }
  std::lock_guard<std::mutex> lock(mu_);
  auto found = mapped_.find(named->segment);
  if (found == mapped_.end()) {
    TakeAll();
    found = mapped_.find(named->segment);
  }
  if (found == mapped_.end()) {
    if (!broken_.ok()) return broken_;
    return Status(StatusCode::kInvalidArgument, "a key for a segment that the peer did not give");
  }
  const Mapped& segment = found->second;
  if (Status status = CheckRange(named->offset, named->size, segment.size, "the peer's segment");
      !status.ok()) {
    return status;
  }
  const uint8_t* const data = segment.data.get() + named->offset + offset;
  return Lease{std::shared_ptr<const uint8_t>(segment.data, data), size};
}

StatusOr<std::shared_ptr<uint8_t>> PeerSegments::FindWritable(const Key&, uint64_t, size_t) {
  return Status(StatusCode::kUnimplemented, "peers of shared memory get it for reading");
}

// Ends soon whatever the peer sends: after kMostSegments good packets, or one bad one, it is
// broken.
void PeerSegments::TakeAll() {
  while (broken_.ok()) {
    const StatusOr<std::optional<Packet>> packet = ReceivePacket(socket_.get());
    if (!packet.ok()) {
      broken_ = packet.status();
    } else if (packet->has_value()) {
      static_cast<void>(TakeLocked(**packet));
    } else {
      return;
    }
  }
}

Status PeerSegments::Take(const Packet& packet) {
  std::lock_guard<std::mutex> lock(mu_);
  return TakeLocked(packet);
}

Status PeerSegments::TakeLocked(const Packet& packet) {
  if (!broken_.ok()) return broken_;
  const auto refuse = [this](Status status) { return broken_ = std::move(status); };
  const StatusOr<Announcement> announced = DecodeAnnouncement(packet.bytes);
  if (!announced.ok()) return refuse(announced.status());
  if (packet.fds.size() != 1) return refuse(WrongCount(packet.fds.size()));
  if (mapped_.count(announced->segment) > 0) {
    return refuse(Status(StatusCode::kInvalidArgument, "the peer announced a segment twice"));
  }
  if (mapped_.size() == kMostSegments || announced->bytes > kMostBytes - mapped_bytes_) {
    return refuse(Status(StatusCode::kResourceExhausted,
                         "the peer announced more than " + std::to_string(kMostSegments) +
                             " segments or " + std::to_string(kMostBytes) + " bytes"));
  }
  StatusOr<std::shared_ptr<const uint8_t>> data =
      MappedSegments::Get().Map(packet.fds[0].get(), announced->bytes);
  if (!data.ok()) return refuse(data.status());
  mapped_bytes_ += announced->bytes;
  mapped_[announced->segment] = {std::move(*data), announced->bytes};
  return Status();
}

}  // namespace ar_grpc::fabric::shm
