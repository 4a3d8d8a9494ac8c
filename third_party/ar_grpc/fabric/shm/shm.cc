// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/shm.h"

#include <utility>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/fabric/shm/connector.h"
#include "third_party/ar_grpc/fabric/shm/listener.h"
#include "third_party/ar_grpc/fabric/shm/peer_segments.h"
#include "third_party/ar_grpc/fabric/shm/place.h"
#include "third_party/ar_grpc/fabric/token_attachment.h"

namespace ar_grpc::fabric::shm {
namespace {

class ShmContext final : public Context {
 public:
  const char* name() const override { return "shm"; }

  Status Available() override {
    if (Status guaranteed = memory::SparsePagesGuaranteed(); !guaranteed.ok()) return guaranteed;
    Token token;
    if (!FillRandom(token.data(), token.size())) {
      return Status(StatusCode::kUnimplemented,
                    "getrandom is refused here: without it no peer can prove that it was invited");
    }
    // Tries what every connection and segment does.
    return memory::Segment::Create(1).status();
  }

  Capabilities capabilities() const override {
    Capabilities can;
    can.stream = can.get = can.map = can.inline_get = true;
    return can;
  }

  StatusOr<std::string> Brochure() override { return Encode(ThisPlace()); }

  Status Reaches(const std::string& brochure) override {
    const StatusOr<Place> there = DecodePlace(brochure);
    return there.ok() ? CanMeet(ThisPlace(), *there) : there.status();
  }

  StatusOr<std::shared_ptr<Registration>> Register(std::shared_ptr<memory::Segment> segment,
                                                   uint64_t offset, uint64_t size,
                                                   Access access) override {
    if (!segment || size == 0) return Status(StatusCode::kInvalidArgument, "nothing to register");
    if (Status status = CheckRange(offset, size, segment->size(), "the segment"); !status.ok()) {
      return status;
    }
    if (access != Access::kRead) {
      return Status(StatusCode::kUnimplemented, "peers of shared memory get it for reading");
    }
    if (!segment->Shareable()) {
      return Status(StatusCode::kFailedPrecondition, "the memory is the parent process's");
    }
    return std::shared_ptr<Registration>(
        std::make_shared<ShmRegistration>(std::move(segment), offset, size));
  }

  StatusOr<std::unique_ptr<Attachment>> Accept(AttachEvents events) override {
    StatusOr<std::shared_ptr<TokenListener>> listener = ProcessListener();
    if (!listener.ok()) return listener.status();
    return AcceptByToken(std::move(*listener), std::move(events));
  }

  StatusOr<std::unique_ptr<Attachment>> Connect(AttachEvents events) override {
    return ConnectByToken(ConnectToPeer, std::move(events));
  }
};

}  // namespace

Context& Get() {
  static auto* const context = new ShmContext;
  return *context;
}

}  // namespace ar_grpc::fabric::shm
