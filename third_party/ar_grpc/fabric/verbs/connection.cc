// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/connection.h"

#include <utility>

#include "third_party/ar_grpc/fabric/verbs/registration.h"
#include "third_party/ar_grpc/fabric/verbs/remote_key.h"

namespace ar_grpc::fabric::verbs {
namespace {

Status NoStream() {
  return Status(StatusCode::kUnimplemented, "an RDMA connection carries no stream");
}

Status Invalid(const char* why) { return Status(StatusCode::kInvalidArgument, why); }

}  // namespace

VerbsConnection::VerbsConnection(std::shared_ptr<QueuePair> pair, uint64_t peer_seal)
    : pair_(std::move(pair)), peer_seal_(peer_seal) {}

VerbsConnection::~VerbsConnection() { pair_->Close({}); }

StatusOr<size_t> VerbsConnection::Write(const iovec*, int) { return NoStream(); }
StatusOr<size_t> VerbsConnection::Read(void*, size_t) { return NoStream(); }
StatusOr<size_t> VerbsConnection::Readable() { return NoStream(); }
StatusOr<bool> VerbsConnection::Post(const Message&) { return NoStream(); }
StatusOr<bool> VerbsConnection::Take(Message*) { return NoStream(); }
StatusOr<bool> VerbsConnection::ArmRead() { return NoStream(); }
StatusOr<bool> VerbsConnection::ArmWrite() { return NoStream(); }
StatusOr<bool> VerbsConnection::ArmPost() { return NoStream(); }

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
  Start({abi::kRdmaRead, abi::kAccessLocalWrite, Access::kRead}, key, offset, into, size,
        std::move(keep), std::move(done));
}

void VerbsConnection::Put(const Key& key, uint64_t offset, const void* from, size_t size,
                          std::shared_ptr<const void> keep, Done done) {
  Start({abi::kRdmaWrite, 0, Access::kWrite}, key, offset, from, size, std::move(keep),
        std::move(done));
}

void VerbsConnection::Start(const Transfer& transfer, const Key& key, uint64_t offset,
                            const void* local, size_t size, std::shared_ptr<const void> keep,
                            Done done) {
  auto operation = std::make_shared<Operation>();
  Status status = Prepare(transfer, key, offset, local, size, operation.get());
  if (!status.ok() || size == 0) {
    if (done) done(std::move(status));
    return;
  }
  operation->keep = std::move(keep);
  operation->done = std::move(done);
  pair_->Submit(std::move(operation));
}

Status VerbsConnection::Prepare(const Transfer& transfer, const Key& key, uint64_t offset,
                                const void* local, size_t size, Operation* operation) {
  if (Status status = pair_->Usable(); !status.ok()) return status;
  const StatusOr<RemoteKey> remote = DecodeKey(key, peer_seal_);
  if (!remote.ok()) return remote.status();
  if (offset > remote->size || size > remote->size - offset) {
    return Invalid("the range is not within the peer's registered memory");
  }
  if (transfer.remote_access == Access::kWrite && remote->access != Access::kWrite) {
    return Invalid("the peer has not registered its memory for writing");
  }
  if (size == 0) return Status();
  const std::shared_ptr<Device>& device = pair_->device();
  operation->region = device->regions().Find(local, size);
  if (!operation->region) {
    // For this operation alone.
    StatusOr<std::shared_ptr<MemoryRegion>> region =
        MemoryRegion::Register(device, local, size, transfer.local_access);
    if (!region.ok()) return region.status();
    operation->region = std::move(*region);
  }
  operation->opcode = transfer.opcode;
  operation->local = reinterpret_cast<uintptr_t>(local);
  operation->remote = remote->address + offset;
  operation->rkey = remote->rkey;
  operation->size = size;
  return Status();
}

}  // namespace ar_grpc::fabric::verbs
