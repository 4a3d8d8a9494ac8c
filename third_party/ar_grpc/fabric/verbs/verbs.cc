// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/verbs.h"

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/verbs/address.h"
#include "third_party/ar_grpc/fabric/verbs/attachment.h"
#include "third_party/ar_grpc/fabric/verbs/connection.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"
#include "third_party/ar_grpc/fabric/verbs/frame.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"
#include "third_party/ar_grpc/fabric/verbs/registration.h"

namespace ar_grpc::fabric::verbs {
namespace {

// One process's device, opened when it is first asked for, and again where it could not be opened
// or has failed. One that has failed is let go at once: the kernel may wait until nobody has it.
class Opened : public std::enable_shared_from_this<Opened> {
 public:
  explicit Opened(uint32_t fork_count) : fork_count_(fork_count) {}
  uint32_t fork_count() const { return fork_count_; }

  StatusOr<std::shared_ptr<Device>> Get() {
    if (std::shared_ptr<Device> device = Working()) return device;
    std::lock_guard<std::mutex> opening(opening_mu_);
    if (std::shared_ptr<Device> device = Working()) return device;
    const StatusOr<const Library*> library = LoadLibrary();
    if (!library.ok()) return library.status();
    StatusOr<std::shared_ptr<Device>> device = Device::Open(**library);
    if (!device.ok()) return device;
    {
      std::lock_guard<std::mutex> lock(mu_);
      device_ = *device;
    }
    (*device)->WhenFailed([weak = weak_from_this()] {
      if (const std::shared_ptr<Opened> self = weak.lock()) self->LetGoFailed();
    });
    return device;
  }

 private:
  std::shared_ptr<Device> Working() {
    std::lock_guard<std::mutex> lock(mu_);
    return device_ && !device_->failed() ? device_ : nullptr;
  }

  // On the reactor, which must not wait for a device that is being opened.
  void LetGoFailed() {
    std::shared_ptr<Device> failed;  // let go without the lock
    std::lock_guard<std::mutex> lock(mu_);
    if (device_ && device_->failed()) failed = std::move(device_);
  }

  const uint32_t fork_count_;
  std::mutex opening_mu_;  // before mu_
  std::mutex mu_;
  std::shared_ptr<Device> device_;
};

class VerbsContext final : public Context {
 public:
  const char* name() const override { return "verbs"; }
  Capabilities capabilities() const override { return kCapabilities; }

  Status Available() override { return OwnPort().status(); }

  StatusOr<std::string> Brochure() override {
    const StatusOr<Device::Port> port = OwnPort();
    if (!port.ok()) return port.status();
    return EncodeBrochure(port->address);
  }

  Status Reaches(const std::string& brochure) override {
    const StatusOr<Device::Port> port = OwnPort();
    if (!port.ok()) return port.status();
    const StatusOr<Address> peer = DecodeBrochure(brochure);
    if (!peer.ok()) return peer.status();
    return FindRoute(port->address, *peer).status();
  }

  StatusOr<std::shared_ptr<Registration>> Register(std::shared_ptr<memory::Segment> segment,
                                                   uint64_t offset, uint64_t size,
                                                   Access access) override {
    StatusOr<std::shared_ptr<Device>> device = OwnDevice();
    if (!device.ok()) return device.status();
    return VerbsRegistration::Make(std::move(*device), std::move(segment), offset, size, access);
  }

  StatusOr<std::unique_ptr<Attachment>> Accept(AttachEvents events) override {
    return Begin(AttachEnd::kServer, std::move(events));
  }
  StatusOr<std::unique_ptr<Attachment>> Connect(AttachEvents events) override {
    return Begin(AttachEnd::kClient, std::move(events));
  }

 private:
  // This process's: a forked child opens one of its own, and leaves its parent's alone.
  StatusOr<std::shared_ptr<Device>> OwnDevice() {
    std::shared_ptr<Opened> opened;
    {
      std::lock_guard<std::mutex> lock(ForkSafeMutex());
      if (!opened_ || opened_->fork_count() != ForkCount()) {
        opened_ = std::make_shared<Opened>(ForkCount());
      }
      opened = opened_;
    }
    return opened->Get();
  }

  StatusOr<Device::Port> OwnPort() {
    const StatusOr<std::shared_ptr<Device>> device = OwnDevice();
    if (!device.ok()) return device.status();
    return (*device)->QueryPort();
  }

  StatusOr<std::unique_ptr<Attachment>> Begin(AttachEnd end, AttachEvents events) {
    StatusOr<std::shared_ptr<Device>> device = OwnDevice();
    if (!device.ok()) return device.status();
    return Attach(std::move(*device), end, std::move(events));
  }

  std::shared_ptr<Opened> opened_;
};

}  // namespace

Context& Get() {
  static auto* const context = new VerbsContext;
  return *context;
}

}  // namespace ar_grpc::fabric::verbs
