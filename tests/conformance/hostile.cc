// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/conformance/hostile.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/forwarding.h"
#include "third_party/ar_grpc/fabric/loopback/loopback.h"
#include "third_party/ar_grpc/fabric/remote_memory.h"

namespace ar_grpc::fabric::hostile {
namespace {

// Runs what it is given, in any order, on its threads.
class Shuffler {
 public:
  explicit Shuffler(const Options& options) : options_(options) {
    for (int i = 0; i < options.threads; ++i) threads_.emplace_back([this, i] { Loop(i); });
  }
  ~Shuffler() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  const Options& options() const { return options_; }

  void Run(std::function<void(bool fails)> task) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
  }

 private:
  void Loop(int seed) {
    std::mt19937 random(seed + 1);
    std::unique_lock<std::mutex> lock(mu_);
    while (true) {
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::swap(tasks_[random() % tasks_.size()], tasks_.back());
      const std::function<void(bool)> task = std::move(tasks_.back());
      tasks_.pop_back();
      lock.unlock();
      std::this_thread::sleep_for(
          std::chrono::microseconds(random() % (options_.largest_delay_us + 1)));
      task(static_cast<int>(random() % 100) < options_.failing_percent);
      lock.lock();
    }
  }

  const Options options_;
  std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::function<void(bool)>> tasks_;  // guarded by mu_
  bool ending_ = false;                           // guarded by mu_
  std::vector<std::thread> threads_;
};

// Takes away what completes within the call that asks for it, and gives the stream a window, as
// fabrics between hosts have.
Capabilities WithoutShortcuts(Capabilities can) {
  can.inline_get = can.map = false;
  can.stream_window = kStreamWindow;
  return can;
}

Status HalfWay() { return Status(StatusCode::kUnavailable, "failed half-way"); }

// The part that operations hold. Loopback's own Close waits for the peer's copies.
struct Inner {
  std::unique_ptr<Connection> connection;
  Operations operations;
  std::atomic<uint64_t> got{0};
};

class HostileConnection final : public Connection {
 public:
  HostileConnection(std::unique_ptr<Connection> connection, std::shared_ptr<Shuffler> shuffler)
      : inner_(std::make_shared<Inner>()), shuffler_(std::move(shuffler)) {
    inner_->connection = std::move(connection);
  }
  ~HostileConnection() override { Close(nullptr); }

  Capabilities capabilities() const override { return WithoutShortcuts(stream().capabilities()); }
  StatusOr<size_t> Write(const iovec* parts, int count) override {
    return stream().Write(parts, count);
  }
  StatusOr<size_t> Read(void* into, size_t size) override { return stream().Read(into, size); }
  StatusOr<size_t> Readable() override { return stream().Readable(); }
  StatusOr<bool> Post(const Message& message) override {
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::microseconds(shuffler_->options().post_us);
    while (std::chrono::steady_clock::now() < end) {
    }
    return stream().Post(message);
  }
  StatusOr<bool> Take(Message* message) override { return stream().Take(message); }
  int wake_fd() const override { return stream().wake_fd(); }
  void ClearWake() override { stream().ClearWake(); }
  StatusOr<bool> ArmRead() override { return stream().ArmRead(); }
  StatusOr<bool> ArmWrite() override { return stream().ArmWrite(); }
  StatusOr<bool> ArmPost() override { return stream().ArmPost(); }
  StatusOr<Key> Export(const std::shared_ptr<Registration>& registration) override {
    return stream().Export(registration);
  }

  void Get(const Key& key, uint64_t offset, void* into, size_t size,
           std::shared_ptr<const void> keep, Done done) override {
    inner_->operations.Enter();
    Run(
        [inner = inner_, key, offset, into, size, keep = std::move(keep)](bool fails) {
          Status status;
          inner->connection->Get(key, offset, into, fails ? size / 2 : size, nullptr,
                                 [&status](Status got) { status = std::move(got); });
          // Written all the same, whoever has closed: a device cannot be called back.
          if (status.code() == StatusCode::kUnavailable) std::memset(into, 0xDB, size);
          if (!status.ok()) return status;
          if (fails) return HalfWay();
          inner->got += size;
          return status;
        },
        std::move(done));
  }

  void Put(const Key& key, uint64_t offset, const void* from, size_t size,
           std::shared_ptr<const void> keep, Done done) override {
    inner_->operations.Enter();
    Run(
        [inner = inner_, key, offset, from, size, keep = std::move(keep)](bool fails) {
          Status status;
          inner->connection->Put(key, offset, from, fails ? size / 2 : size, nullptr,
                                 [&status](Status put) { status = std::move(put); });
          return status.ok() && fails ? HalfWay() : status;
        },
        std::move(done));
  }

  StatusOr<Lease> Map(const Key&, uint64_t, size_t) override {
    return Status(StatusCode::kUnimplemented, "nothing is mapped here");
  }
  void Progress() override {}
  void Close(std::function<void()> done) override {
    if (!done) return stream().Close(nullptr);
    stream().Close([inner = inner_, done = std::move(done)] { inner->operations.WhenIdle(done); });
  }
  bool closed() const override { return stream().closed(); }
  uint64_t stream_bytes_sent() const override { return stream().stream_bytes_sent(); }
  uint64_t stream_bytes_received() const override { return stream().stream_bytes_received(); }
  uint64_t get_bytes() const override { return inner_->got; }

 private:
  Connection& stream() const { return *inner_->connection; }

  // The operation has been entered.
  void Run(std::function<Status(bool)> operation, Done done) {
    shuffler_->Run([inner = inner_, closes = shuffler_->options().failure_closes,
                    operation = std::move(operation), done = std::move(done)](bool fails) mutable {
      Status status = operation(fails);
      operation = nullptr;  // and what it keeps
      if (fails && closes) inner->connection->Close(nullptr);
      done(std::move(status));
      inner->operations.Leave();
    });
  }

  const std::shared_ptr<Inner> inner_;
  const std::shared_ptr<Shuffler> shuffler_;
};

class HostileContext final : public testing::ForwardingContext {
 public:
  explicit HostileContext(const Options& options)
      : ForwardingContext(loopback::New()), shuffler_(std::make_shared<Shuffler>(options)) {}

  const char* name() const override { return "hostile"; }
  Capabilities capabilities() const override {
    return WithoutShortcuts(ForwardingContext::capabilities());
  }
  StatusOr<std::unique_ptr<Attachment>> Accept(AttachEvents events) override {
    return ForwardingContext::Accept(Wrapped(std::move(events)));
  }
  StatusOr<std::unique_ptr<Attachment>> Connect(AttachEvents events) override {
    return ForwardingContext::Connect(Wrapped(std::move(events)));
  }

 private:
  AttachEvents Wrapped(AttachEvents events) {
    events.done = [shuffler = shuffler_,
                   done = std::move(events.done)](StatusOr<std::unique_ptr<Connection>> made) {
      if (!made.ok()) return done(made.status());
      done(std::unique_ptr<Connection>(
          std::make_unique<HostileConnection>(std::move(*made), shuffler)));
    };
    return events;
  }

  const std::shared_ptr<Shuffler> shuffler_;
};

}  // namespace

std::unique_ptr<Context> New(const Options& options) {
  return std::make_unique<HostileContext>(options);
}

}  // namespace ar_grpc::fabric::hostile
