// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/attachment.h"

#include <mutex>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/aside.h"
#include "third_party/ar_grpc/fabric/verbs/connection.h"
#include "third_party/ar_grpc/fabric/verbs/frame.h"
#include "third_party/ar_grpc/fabric/verbs/iwarp_attachment.h"
#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"

namespace ar_grpc::fabric::verbs {
namespace {

// The first frame has this time to get to the peer's device and its answer back: one that is lost
// is sent again meanwhile, with the default of RDMA_QP_TIMEOUT. The other end waits for it longer,
// as it only then hears of this end's failure where nobody tells it.
constexpr int kGreetingMs = 1500;
constexpr int kGreetedMs = 5000;

// Outlives its Attachment while a thread connects.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(std::shared_ptr<QueuePair> pair, const Device::Port& port, AttachEnd end,
          AttachEvents events)
      : pair_(std::move(pair)), port_(port), end_(end), events_(std::move(events)) {}

  void Begin() {
    if (end_ == AttachEnd::kServer) events_.send(Encode(pair_->Describe(port_)));
  }

  void TakeFrame(const std::string& frame) {
    switch (Expected()) {
      case State::kHello:
        return TakeHello(frame);
      case State::kReady:
        if (!IsReadyFrame(frame)) return Finish(Malformed());
        return Greet();
      case State::kConnecting:
      case State::kGreeting:
        // Only a peer that does not wait for its answer.
        return Finish(Malformed());
      case State::kOver:
        return;
    }
  }

  // In a forked child a thread of the parent's may hold the lock for ever.
  bool InChild() const { return pair_->device()->InChild(); }

  void GiveUp() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (std::exchange(state_, State::kOver) == State::kOver) return;
    }
    pair_->Close({});
  }

 private:
  enum class State { kHello, kConnecting, kReady, kGreeting, kOver };

  static Status Malformed() {
    return Status(StatusCode::kInvalidArgument, "the peer's RDMA end does not keep to the order");
  }

  State Expected() {
    std::lock_guard<std::mutex> lock(mu_);
    return state_;
  }

  // false: given up meanwhile.
  bool Advance(State from, State to) {
    std::lock_guard<std::mutex> lock(mu_);
    if (state_ != from) return false;
    state_ = to;
    return true;
  }

  void TakeHello(const std::string& frame) {
    StatusOr<Hello> hello = DecodeHello(frame);
    if (!hello.ok()) return Finish(hello.status());
    if (!Advance(State::kHello, State::kConnecting)) return;
    peer_seal_ = hello->seal;
    Status status =
        RunAside([self = shared_from_this(), peer = std::move(*hello)] { self->Connect(peer); });
    if (!status.ok()) Finish(std::move(status));
  }

  void Connect(const Hello& peer) {
    const auto self = shared_from_this();
    const bool serves = end_ == AttachEnd::kServer;
    if (serves) pair_->WhenHeard([self] { self->Heard(); });
    Status status = pair_->Connect(port_, peer);
    if (!status.ok()) return Finish(std::move(status));
    if (serves) return AwaitGreeting();
    if (Advance(State::kConnecting, State::kReady)) events_.send(Encode(pair_->Describe(port_)));
  }

  void AwaitGreeting() {
    if (Expected() != State::kConnecting) return;
    FinishIn(kGreetedMs, "no greeting of the peer's RDMA device has come within ");
    events_.send(ReadyFrame());
    if (!Advance(State::kConnecting, State::kGreeting)) return;
    bool heard = false;
    {
      std::lock_guard<std::mutex> lock(mu_);
      heard = heard_;
    }
    if (heard) Finish(pair_->Usable());
  }

  // A peer that does not wait for its answer may be heard before this end is connected.
  void Heard() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      heard_ = true;
      if (state_ != State::kGreeting) return;
    }
    Finish(pair_->Usable());
  }

  void Greet() {
    if (!Advance(State::kReady, State::kGreeting)) return;
    FinishIn(kGreetingMs, "the peer's RDMA device has not answered within ");
    Status status =
        pair_->Greet([self = shared_from_this()] { self->Finish(self->pair_->Usable()); });
    if (!status.ok()) Finish(std::move(status));
  }

  // Where it is not over by then.
  void FinishIn(int ms, const std::string& why) {
    const bool roce = port_.address.link_layer == abi::kLinkLayerEthernet;
    Status status(StatusCode::kUnavailable,
                  pair_->device()->name() + ": " + why + std::to_string(ms) + " ms" +
                      (roce ? ": a firewall must let UDP port 4791 pass" : ""));
    Reactor::Get().RunAfter(ms, [weak = weak_from_this(), status = std::move(status)] {
      if (const std::shared_ptr<Attempt> self = weak.lock()) self->Finish(status);
    });
  }

  void Finish(Status status) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (std::exchange(state_, State::kOver) == State::kOver) return;
    }
    if (status.ok()) {
      return events_.done(
          std::unique_ptr<Connection>(std::make_unique<VerbsConnection>(pair_, peer_seal_)));
    }
    pair_->Close({});
    events_.done(std::move(status));
  }

  const std::shared_ptr<QueuePair> pair_;
  const Device::Port port_;
  const AttachEnd end_;
  const AttachEvents events_;
  uint64_t peer_seal_ = 0;  // set before kConnecting ends
  std::mutex mu_;
  State state_ = State::kHello;
  bool heard_ = false;
};

class VerbsAttachment final : public Attachment {
 public:
  explicit VerbsAttachment(std::shared_ptr<Attempt> attempt) : attempt_(std::move(attempt)) {}
  ~VerbsAttachment() override {
    if (!attempt_->InChild()) attempt_->GiveUp();
  }
  void TakeFrame(const std::string& frame) override {
    const std::shared_ptr<Attempt> attempt = attempt_;  // an event may destroy this
    attempt->TakeFrame(frame);
  }

 private:
  const std::shared_ptr<Attempt> attempt_;
};

}  // namespace

StatusOr<std::unique_ptr<Attachment>> Attach(std::shared_ptr<Device> device, AttachEnd end,
                                             AttachEvents events) {
  StatusOr<Device::Port> port = device->QueryPort();
  if (!port.ok()) return port.status();
  if (device->iwarp()) {
    return AttachIwarp(std::move(device), *port, end == AttachEnd::kServer, std::move(events));
  }
  StatusOr<std::shared_ptr<QueuePair>> pair = QueuePair::Create(std::move(device));
  if (!pair.ok()) return pair.status();
  auto attempt = std::make_shared<Attempt>(std::move(*pair), *port, end, std::move(events));
  auto attachment = std::make_unique<VerbsAttachment>(attempt);
  attempt->Begin();
  return std::unique_ptr<Attachment>(std::move(attachment));
}

}  // namespace ar_grpc::fabric::verbs
