// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_CONFORMANCE_FORWARDING_H_
#define TESTS_CONFORMANCE_FORWARDING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc::fabric::testing {

// Does as another context does; what a test wants otherwise it overrides.
class ForwardingContext : public Context {
 public:
  explicit ForwardingContext(std::shared_ptr<Context> under) : under_(std::move(under)) {}
  // Of one that lives as long, and is not owned.
  explicit ForwardingContext(Context* borrowed) : under_(std::shared_ptr<void>(), borrowed) {}
  const char* name() const override { return under_->name(); }
  Capabilities capabilities() const override { return under_->capabilities(); }
  Status Available() override { return under_->Available(); }
  StatusOr<std::string> Brochure() override { return under_->Brochure(); }
  Status Reaches(const std::string& brochure) override { return under_->Reaches(brochure); }
  StatusOr<std::shared_ptr<Registration>> Register(std::shared_ptr<memory::Segment> segment,
                                                   uint64_t offset, uint64_t size,
                                                   Access access) override {
    return under_->Register(std::move(segment), offset, size, access);
  }
  StatusOr<std::unique_ptr<Attachment>> Accept(AttachEvents events) override {
    return under_->Accept(std::move(events));
  }
  StatusOr<std::unique_ptr<Attachment>> Connect(AttachEvents events) override {
    return under_->Connect(std::move(events));
  }

 private:
  const std::shared_ptr<Context> under_;
};

}  // namespace ar_grpc::fabric::testing

#endif  // TESTS_CONFORMANCE_FORWARDING_H_
