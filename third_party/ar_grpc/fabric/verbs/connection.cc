// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/connection.h"

#include <utility>

#include "third_party/ar_grpc/fabric/verbs/registration.h"
#include "third_party/ar_grpc/fabric/verbs/remote_key.h"

namespace ar_grpc::fabric::verbs {
namespace {

// Pieces that a transfer has at once whose memory was refused: as many as hide the copies.
constexpr size_t kPiecesOfOne = 4;

Status Invalid(const char* why) { return Status(StatusCode::kInvalidArgument, why); }

// A transfer's local memory, which is written by a READ alone.
void* Writable(const void* local) { return const_cast<void*>(local); }

}  // namespace

VerbsConnection::VerbsConnection(std::shared_ptr<QueuePair> pair, uint64_t peer_seal)
    : pair_(std::move(pair)), bounce_(pair_->device()->Bounce()), peer_seal_(peer_seal) {}

VerbsConnection::~VerbsConnection() { pair_->Close({}); }

StatusOr<Lease> VerbsConnection::Map(const Key&, uint64_t, size_t) {
  return Status(StatusCode::kUnimplemented, "a peer's memory cannot be mapped over RDMA");
}

StatusOr<Key> VerbsConnection::Export(const std::shared_ptr<Registration>& registration) {
  if (Status status = pair_->Usable(); !status.ok()) return status;
  const auto* const ours = dynamic_cast<const VerbsRegistration*>(registration.get());
  if (ours == nullptr || &ours->device() != pair_->device().get()) {
    return Invalid("the memory is not registered with this connection's RDMA device");
  }
  return ours->KeySealedWith(pair_->seal());
}

void VerbsConnection::Get(const Key& key, uint64_t offset, void* into, size_t size,
                          std::shared_ptr<const void> keep, Done done) {
  Start(Ends(), kRead, {key, offset, into, size}, std::move(keep), std::move(done));
}

void VerbsConnection::Put(const Key& key, uint64_t offset, const void* from, size_t size,
                          std::shared_ptr<const void> keep, Done done) {
  if (pair_->device()->iwarp() && size > 0) {
    // The WRITE has ended when this device is through with it; the peer's answers nothing. But what
    // follows on the wire finds its bytes in the peer's memory: a READ of the last one.
    done = [ends = Ends(), key, last = offset + size - 1, done = std::move(done)](Status status) {
      if (!status.ok()) {
        if (done) done(std::move(status));
        return;
      }
      const auto byte = std::make_shared<uint8_t>();
      Start(ends, kLookBack, {key, last, byte.get(), 1}, byte, done);
    };
  }
  Start(Ends(), kWrite, {key, offset, from, size}, std::move(keep), std::move(done));
}

void VerbsConnection::Start(const TwoEnds& ends, const Transfer& transfer, const Range& range,
                            std::shared_ptr<const void> keep, Done done) {
  auto operation = std::make_shared<Operation>();
  Status status = Prepare(ends, transfer, range, operation.get());
  if (!status.ok() || range.size == 0) {
    if (done) done(std::move(status));
    return;
  }
  if (!operation->region) {
    const std::shared_ptr<Device>& device = ends.pair->device();
    // Over iWARP a peer may write what a READ lands in, and pieces are shared by all peers.
    const bool can_bounce = transfer.opcode != abi::kRdmaRead || !device->iwarp();
    const bool is_small = can_bounce && range.size <= BouncePool::kPieceBytes;
    if (is_small) {
      if (BouncePool::Pieces piece = ends.bounce->Take(1); !piece.empty()) {
        return BounceBy(std::move(piece), ends.pair, *operation, Writable(range.local),
                        std::move(keep), std::move(done));
      }
    }
    StatusOr<std::shared_ptr<MemoryRegion>> region =
        MemoryRegion::Register(device, range.local, range.size, LocalAccess(*device, transfer));
    // Only now, so that the registration above does not wait for the one of the pool.
    if (is_small) ends.bounce->Ask();
    if (!region.ok()) {
      if (can_bounce && region.status().code() == StatusCode::kResourceExhausted) {
        return BounceRefused(ends, *operation, range.local, region.status(), std::move(keep),
                             std::move(done));
      }
      if (done) done(region.status());
      return;
    }
    operation->region = std::move(*region);
  }
  operation->keep = std::move(keep);
  operation->done = std::move(done);
  ends.pair->Submit(std::move(operation));
}

void VerbsConnection::BounceRefused(const TwoEnds& ends, const Operation& transfer,
                                    const void* local, Status refused,
                                    std::shared_ptr<const void> keep, Done done) {
  BouncePool::Pieces pieces = ends.bounce->Take(kPiecesOfOne);
  if (!pieces.empty()) {
    return BounceBy(std::move(pieces), ends.pair, transfer, Writable(local), std::move(keep),
                    std::move(done));
  }
  if (transfer.opcode == abi::kRdmaRead) {
    ends.bounce->Ask();
    if (done) done(std::move(refused));
    return;
  }
  ends.bounce->Await([pair = ends.pair, transfer, local, refused = std::move(refused),
                      keep = std::move(keep),
                      done = std::move(done)](std::shared_ptr<BouncePool::Piece> piece) mutable {
    if (piece == nullptr) {
      if (done) done(std::move(refused));
      return;
    }
    BounceBy({std::move(piece)}, pair, transfer, Writable(local), std::move(keep), std::move(done));
  });
}

// The peer's device answers an iWARP READ by what is a WRITE for ours, and is told where to. So it
// may write there until the operation ends, but nowhere else: not in a registration of more.
int VerbsConnection::LocalAccess(const Device& device, const Transfer& transfer) {
  const bool is_written = device.iwarp() && transfer.opcode == abi::kRdmaRead;
  return transfer.local_access | (is_written ? abi::kAccessRemoteWrite : 0);
}

Status VerbsConnection::Prepare(const TwoEnds& ends, const Transfer& transfer, const Range& range,
                                Operation* operation) {
  if (Status status = ends.pair->Usable(); !status.ok()) return status;
  const auto& [key, offset, local, size] = range;
  const StatusOr<RemoteKey> remote = DecodeKey(key, ends.peer_seal);
  if (!remote.ok()) return remote.status();
  if (offset > remote->size || size > remote->size - offset) {
    return Invalid("the range is not within the peer's registered memory");
  }
  if (transfer.remote_access == Access::kWrite && remote->access != Access::kWrite) {
    return Invalid("the peer has not registered its memory for writing");
  }
  if (size == 0) return Status();
  Device& device = *ends.pair->device();
  if (LocalAccess(device, transfer) == transfer.local_access) {
    operation->region = device.regions().Find(local, size);
  }
  operation->opcode = transfer.opcode;
  operation->payload = transfer.payload;
  operation->local = reinterpret_cast<uintptr_t>(local);
  operation->remote = remote->address + offset;
  operation->rkey = remote->rkey;
  operation->size = size;
  return Status();
}

}  // namespace ar_grpc::fabric::verbs
