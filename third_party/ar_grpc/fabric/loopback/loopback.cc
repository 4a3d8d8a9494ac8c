// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/loopback/loopback.h"

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/expected.h"
#include "third_party/ar_grpc/fabric/loopback/link_memory.h"
#include "third_party/ar_grpc/fabric/ring_connection.h"

namespace ar_grpc::fabric::loopback {
namespace {

// What a context waits for, at an address of its own.
class LoopbackListener final : public TokenListener {
 public:
  explicit LoopbackListener(ContextId context)
      : context_(context), address_("loopback:" + std::to_string(context)) {}
  std::string address() const override { return address_; }
  void Expect(const Token& token, ConnectDone done) override {
    expected_.Expect(token, std::move(done));
  }
  void Forget(const Token& token) override { expected_.Forget(token); }

  ContextId context() const { return context_; }
  ConnectDone Take(const Token& token) { return expected_.Take(token); }

 private:
  const ContextId context_;
  const std::string address_;
  ExpectedTokens expected_;
};

// The listeners of this process's contexts. Thread-safe.
class Listeners {
 public:
  static Listeners& Get() {
    static auto* const listeners = new Listeners;
    return *listeners;
  }
  void Add(const std::shared_ptr<LoopbackListener>& listener) {
    std::lock_guard<std::mutex> lock(mu_);
    listeners_[listener->address()] = listener;
  }
  void Remove(const std::string& address) {
    std::lock_guard<std::mutex> lock(mu_);
    listeners_.erase(address);
  }
  std::shared_ptr<LoopbackListener> Find(const std::string& address) {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = listeners_.find(address);
    return found == listeners_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mu_;
  std::map<std::string, std::shared_ptr<LoopbackListener>> listeners_;  // guarded by mu_
};

const std::string& ProcessToken() {
  static const auto* const token = new std::string(RandomHex());
  return *token;
}

// Both ends of a connection between two contexts.
Status MakeEnds(const ContextId (&contexts)[2], RingConnection::Parts (&ends)[2]) {
  auto memory =
      Map(-1, ConnectionBytes(kRingBytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  if (!memory.ok()) return memory.status();
  const auto link = std::make_shared<Link>();
  StatusOr<std::array<std::unique_ptr<Doorbell>, 2>> doorbells = NewDoorbells();
  if (!doorbells.ok()) return doorbells.status();
  for (int end = 0; end < 2; ++end) {
    ends[end].memory = *memory;
    ends[end].end = end == 0 ? RingEnd::kConnector : RingEnd::kAcceptor;
    ends[end].remote = std::make_shared<LinkMemory>(link, end, contexts[end]);
    ends[end].put = true;
    ends[end].doorbell = std::move((*doorbells)[static_cast<size_t>(end)]);
  }
  ends[1].operations = ends[0].operations;
  return Status();
}

void Attach(ContextId connector, const TokenFrame& frame, const ConnectDone& done) {
  if (frame.version != TokenFrame().version) {
    return done(Status(StatusCode::kUnimplemented, "another version of loopback"));
  }
  const std::shared_ptr<LoopbackListener> listener = Listeners::Get().Find(frame.address);
  if (!listener) {
    return done(Status(StatusCode::kUnavailable, "no listener at " + frame.address));
  }
  const ConnectDone accepted = listener->Take(frame.token);
  if (!accepted) return done(Status(StatusCode::kPermissionDenied, "unknown token"));
  RingConnection::Parts ends[2];
  if (Status status = MakeEnds({connector, listener->context()}, ends); !status.ok()) {
    accepted(status);
    return done(status);
  }
  accepted(std::unique_ptr<Connection>(std::make_unique<RingConnection>(std::move(ends[1]))));
  done(std::unique_ptr<Connection>(std::make_unique<RingConnection>(std::move(ends[0]))));
}

ContextId NextContext() {
  static std::atomic<ContextId> last{0};
  return ++last;
}

class LoopbackContext final : public Context {
 public:
  LoopbackContext() : id_(NextContext()), listener_(std::make_shared<LoopbackListener>(id_)) {
    Listeners::Get().Add(listener_);
  }
  ~LoopbackContext() override { Listeners::Get().Remove(listener_->address()); }

  const char* name() const override { return "loopback"; }
  Capabilities capabilities() const override {
    Capabilities can;
    can.stream = can.get = can.put = can.map = can.inline_get = true;
    return can;
  }
  Status Available() override { return Status(); }
  StatusOr<std::string> Brochure() override { return ProcessToken(); }
  Status Reaches(const std::string& brochure) override {
    if (brochure.size() != ProcessToken().size()) {
      return Status(StatusCode::kInvalidArgument, "not a loopback's brochure");
    }
    if (brochure == ProcessToken()) return Status();
    return Status(StatusCode::kUnavailable, "the peer is another process");
  }

  StatusOr<std::shared_ptr<Registration>> Register(std::shared_ptr<memory::Segment> segment,
                                                   uint64_t offset, uint64_t size,
                                                   Access access) override {
    if (!segment || size == 0) return Status(StatusCode::kInvalidArgument, "nothing to register");
    if (Status status = CheckRange(offset, size, segment->size(), "the segment"); !status.ok()) {
      return status;
    }
    return std::shared_ptr<Registration>(
        std::make_shared<LoopbackRegistration>(id_, std::move(segment), offset, size, access));
  }

  StatusOr<std::unique_ptr<Attachment>> Accept(AttachEvents events) override {
    return AcceptByToken(listener_, std::move(events));
  }

  StatusOr<std::unique_ptr<Attachment>> Connect(AttachEvents events) override {
    const auto connect = [id = id_](const TokenFrame& frame,
                                    ConnectDone done) -> std::function<void()> {
      const auto stopped = std::make_shared<std::atomic<bool>>(false);
      Status started = StartOnReactor([=] {
        if (!*stopped) Attach(id, frame, done);
      });
      if (!started.ok()) done(std::move(started));
      return [stopped] { *stopped = true; };
    };
    return ConnectByToken(connect, std::move(events));
  }

 private:
  const ContextId id_;
  const std::shared_ptr<LoopbackListener> listener_;
};

}  // namespace

Context& Get() {
  static auto* const context = new LoopbackContext;
  return *context;
}

std::unique_ptr<Context> New() { return std::make_unique<LoopbackContext>(); }

}  // namespace ar_grpc::fabric::loopback
