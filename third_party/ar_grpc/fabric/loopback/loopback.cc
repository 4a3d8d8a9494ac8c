// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/loopback/loopback.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/expected.h"
#include "third_party/ar_grpc/fabric/ring_connection.h"

namespace ar_grpc::fabric::loopback {
namespace {

class HeapRegion final : public Region {
 public:
  HeapRegion(std::shared_ptr<uint8_t> memory, size_t size)
      : memory_(std::move(memory)), size_(size) {}
  uint8_t* data() const override { return memory_.get(); }
  size_t size() const override { return size_; }
  Status Discard(size_t offset, size_t length) override {
    if (offset > size_ || length > size_ - offset) {
      return Status(StatusCode::kInvalidArgument, "the range is not within the region");
    }
    if (madvise(data() + offset, length, MADV_DONTNEED) == 0) return Status();
    return ErrnoStatus(errno, "madvise");
  }
  void MakePrivateAfterFork() override {}  // it is private memory

  RemoteRegion Remote() const { return {memory_, size_}; }

 private:
  const std::shared_ptr<uint8_t> memory_;
  const size_t size_;
};

class LoopbackListener;

class LoopbackContext final : public Context {
 public:
  const char* name() const override { return "loopback"; }
  Status Available() override { return Status(); }

  StatusOr<std::shared_ptr<Region>> Allocate(size_t size) override {
    if (size == 0) return Status(StatusCode::kInvalidArgument, "a region has at least one byte");
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t rounded = (size + page - 1) / page * page;
    if (rounded < size) return Status(StatusCode::kResourceExhausted, "the region is too large");
    auto memory =
        Map(-1, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
    if (!memory.ok()) return memory.status();
    return std::shared_ptr<Region>(std::make_shared<HeapRegion>(std::move(*memory), rounded));
  }

  void Offer(std::shared_ptr<Region> region) override {
    std::lock_guard<std::mutex> lock(mu_);
    offered_ = std::dynamic_pointer_cast<HeapRegion>(std::move(region));
  }

  StatusOr<std::unique_ptr<Listener>> Listen() override;
  Status Connect(const std::string& address, const Token& token, int timeout_ms,
                 ConnectDone done) override;

  void Drop(const std::string& address) {
    std::lock_guard<std::mutex> lock(mu_);
    listeners_.erase(address);
  }

 private:
  void Attach(const std::string& address, const Token& token, const ConnectDone& done);

  RemoteRegion Offered() {
    std::lock_guard<std::mutex> lock(mu_);
    return offered_ ? offered_->Remote() : RemoteRegion();
  }

  std::mutex mu_;
  std::shared_ptr<HeapRegion> offered_;
  std::map<std::string, std::shared_ptr<ExpectedTokens>> listeners_;
};

LoopbackContext& Instance() {
  static auto* const context = new LoopbackContext;
  return *context;
}

class LoopbackListener final : public Listener {
 public:
  LoopbackListener(std::string address, std::shared_ptr<ExpectedTokens> expected)
      : address_(std::move(address)), expected_(std::move(expected)) {}
  ~LoopbackListener() override {
    Instance().Drop(address_);
    RunOnReactor([] {});  // a callback may run now
  }
  std::string address() const override { return address_; }
  void Expect(const Token& token, ConnectDone done) override {
    expected_->Expect(token, std::move(done));
  }
  void Forget(const Token& token) override { expected_->Forget(token); }

 private:
  const std::string address_;
  const std::shared_ptr<ExpectedTokens> expected_;
};

StatusOr<std::unique_ptr<Listener>> LoopbackContext::Listen() {
  const std::string address = "loopback:" + RandomHex();
  auto expected = std::make_shared<ExpectedTokens>();
  {
    std::lock_guard<std::mutex> lock(mu_);
    listeners_[address] = expected;
  }
  return std::unique_ptr<Listener>(
      std::make_unique<LoopbackListener>(address, std::move(expected)));
}

Status LoopbackContext::Connect(const std::string& address, const Token& token, int,
                                ConnectDone done) {
  return StartOnReactor([this, address, token, done] { Attach(address, token, done); });
}

void LoopbackContext::Attach(const std::string& address, const Token& token,
                             const ConnectDone& done) {
  std::shared_ptr<ExpectedTokens> listener;
  {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = listeners_.find(address);
    if (found != listeners_.end()) listener = found->second;
  }
  if (!listener) return done(Status(StatusCode::kUnavailable, "no listener at " + address));
  const ConnectDone accepted = listener->Take(token);
  if (!accepted) return done(Status(StatusCode::kPermissionDenied, "unknown token"));

  auto memory =
      Map(-1, ConnectionBytes(kRingBytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
  Status status = memory.status();
  RingConnection::Parts ends[2];
  for (int end = 0; end < 2 && status.ok(); ++end) {
    StatusOr<UniqueFd> wake = NewWakeFd();
    status = wake.status();
    if (!status.ok()) break;
    UniqueFd copy(fcntl(wake->get(), F_DUPFD_CLOEXEC, 0));
    if (!copy.valid()) status = ErrnoStatus(errno, "dup");
    ends[end].memory = *memory;
    ends[end].role = end == 0 ? Role::kConnector : Role::kAcceptor;
    ends[end].remote = Offered();
    ends[end].wake = std::move(*wake);
    ends[1 - end].peer_wake = std::move(copy);
  }
  if (!status.ok()) {
    accepted(status);
    return done(status);
  }
  accepted(std::unique_ptr<Connection>(std::make_unique<RingConnection>(std::move(ends[1]))));
  done(std::unique_ptr<Connection>(std::make_unique<RingConnection>(std::move(ends[0]))));
}

}  // namespace

Context& Get() { return Instance(); }

}  // namespace ar_grpc::fabric::loopback
