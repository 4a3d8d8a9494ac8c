// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_UNITS_TRANSFER_TESTING_H_
#define TESTS_UNITS_TRANSFER_TESTING_H_

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/forwarding.h"
#include "tests/conformance/hostile.h"
#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/fabric/loopback/loopback.h"
#include "third_party/ar_grpc/memory/segment.h"
#include "third_party/ar_grpc/protocol/node.h"
#include "third_party/ar_grpc/protocol/receiver.h"
#include "third_party/ar_grpc/protocol/sender.h"

// Two nodes of one process, links between them, and transfers without gRPC or TensorFlow.
namespace ar_grpc::protocol::testing {

using fabric::testing::Check;
using fabric::testing::CheckCode;
using fabric::testing::CheckOk;
using fabric::testing::Eventually;
using fabric::testing::kSlowdown;
using fabric::testing::Pattern;
using fabric::testing::Value;

// Threads that run tasks in their order.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
  }
  ~Pool() {
    {
      std::lock_guard<std::mutex> lock(mu_);
      ending_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void Run(std::function<void()> task) {
    // Under the lock: a task that has run may be the last thing that the destructor waits for.
    std::lock_guard<std::mutex> lock(mu_);
    tasks_.push_back(std::move(task));
    changed_.notify_one();
  }

 private:
  void Loop() {
    std::unique_lock<std::mutex> lock(mu_);
    for (;;) {
      changed_.wait(lock, [this] { return ending_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;  // guarded by mu_
  bool ending_ = false;                      // guarded by mu_
  std::vector<std::thread> threads_;
};

// Calls to a node's sender, answered on threads of their own.
class Calls final : public ChunkCaller {
 public:
  explicit Calls(std::shared_ptr<Node> server) : server_(std::move(server)) {}

  std::function<void()> Start(const ChunkRequest& request, Target target, int64_t timeout_ms,
                              std::function<void(Status)> done) override {
    ++started;
    last_timeout_ms = timeout_ms;
    if (refuse) {
      done(Status(StatusCode::kUnavailable, "nobody listens"));
      return [] {};
    }
    auto call = std::make_shared<Call>(Call{request, std::move(target), std::move(done)});
    std::lock_guard<std::mutex> lock(mu_);
    if (hold) {
      held_.push_back(call);
    } else {
      pool_.Run([this, call] { Serve(call.get()); });
    }
    return [this, call] {
      call->cancelled = true;
      std::lock_guard<std::mutex> cancel_lock(mu_);
      for (size_t i = 0; i < held_.size(); ++i) {
        if (held_[i] != call) continue;
        held_.erase(held_.begin() + static_cast<std::ptrdiff_t>(i));
        pool_.Run([this, call] { Serve(call.get()); });
        return;
      }
    };
  }
  void Release(const ChunkRequest& request, std::function<void()> lost) override {
    if (releases_to_lose > 0) {
      --releases_to_lose;
      return lost();
    }
    ++releases;
    Check(Sender(server_, nullptr, nullptr).ServeChunk(request).ok(), "a release by a call");
  }
  void LetGo() {
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& call : held_) pool_.Run([this, call] { Serve(call.get()); });
    held_.clear();
  }

  // Whether a second answer to any call might still be written.
  bool MayStillWrite() {
    std::lock_guard<std::mutex> lock(mu_);
    for (const std::shared_ptr<WriteGate>& gate : gates_) {
      if (!gate->BeginWrite()) continue;
      gate->EndWrite();
      return true;
    }
    return false;
  }

  std::atomic<bool> hold{false};
  std::atomic<bool> twice{false};  // each call ends two times
  std::atomic<bool> refuse{false};
  std::atomic<int> started{0};
  std::atomic<int> releases{0};
  std::atomic<int> releases_to_lose{0};  // the next ones, which do not arrive
  std::atomic<int64_t> last_timeout_ms{-1};

 private:
  struct Call {
    Call(ChunkRequest asked, Target to, std::function<void(Status)> ended)
        : request(asked), target(std::move(to)), done(std::move(ended)) {}
    Call(Call&& other) noexcept
        : request(other.request), target(std::move(other.target)), done(std::move(other.done)) {}
    ChunkRequest request;
    Target target;
    std::function<void(Status)> done;
    std::atomic<bool> cancelled{false};
  };

  void Serve(Call* call) {
    const std::function<void(Status)> done = std::move(call->done);
    call->done = nullptr;
    if (call->cancelled) return done(Status(StatusCode::kCancelled, "the call was cancelled"));
    StatusOr<Sender::Piece> piece = Sender(server_, nullptr, nullptr).ServeChunk(call->request);
    if (!piece.ok()) return done(piece.status());
    Check(piece->length == call->target.size, "a chunk's size");
    if (twice) {
      std::lock_guard<std::mutex> lock(mu_);
      gates_.push_back(call->target.gate);
    }
    if (!call->target.gate->BeginWrite()) {
      return done(Status(StatusCode::kInternal, "nothing may be written there any more"));
    }
    std::memcpy(call->target.into, piece->data, piece->length);
    call->target.gate->EndWrite();
    done(OkStatus());
    if (twice) done(OkStatus());
  }

  const std::shared_ptr<Node> server_;
  std::mutex mu_;
  std::vector<std::shared_ptr<Call>> held_;        // guarded by mu_
  std::vector<std::shared_ptr<WriteGate>> gates_;  // guarded by mu_
  Pool pool_{2};
};

// What a sender is told of its source.
struct Source {
  SourceBuffer buffer;
  std::shared_ptr<std::atomic<int>> released = std::make_shared<std::atomic<int>>(0);
  std::weak_ptr<const void> alive;

  std::function<void()> OnReleased() const {
    return [released = released] { ++*released; };
  }
};

// The outcome of a transfer.
struct Outcome {
  std::mutex mu;
  std::condition_variable changed;
  int dones = 0;
  Status status;

  std::function<void(Status)> Done(std::shared_ptr<Outcome> self) {
    return [self = std::move(self)](Status ended) {
      std::lock_guard<std::mutex> lock(self->mu);
      Check(++self->dones == 1, "done ran twice");
      self->status = std::move(ended);
      self->changed.notify_all();
    };
  }
  bool Ended() {
    std::lock_guard<std::mutex> lock(mu);
    return dones > 0;
  }
  Status Wait() {
    std::unique_lock<std::mutex> lock(mu);
    Check(changed.wait_for(lock, std::chrono::seconds(60), [this] { return dones > 0; }),
          "a transfer does not end");
    return status;
  }
};

// Messages that a World takes of a link at once.
inline constexpr size_t kMostMessages = 256;

// Two ends of a link.
struct Ends {
  std::shared_ptr<Link> server;
  std::shared_ptr<Link> client;
};

// A fabric of which a process has one context.
class BorrowedContext final : public fabric::testing::ForwardingContext {
 public:
  explicit BorrowedContext(fabric::Context* context) : ForwardingContext(context) {}
};

class World {
 public:
  using MakeContext = std::function<std::unique_ptr<fabric::Context>()>;
  static MakeContext Loopback() {
    return [] { return fabric::loopback::New(); };
  }
  static MakeContext Hostile(fabric::hostile::Options options = {}) {
    return [options] { return fabric::hostile::New(options); };
  }
  static MakeContext Borrow(fabric::Context* context) {
    return [context] { return std::make_unique<BorrowedContext>(context); };
  }

  explicit World(const MakeContext& make, size_t segment_bytes = size_t{192} << 20)
      : server_context(make()),
        client_context(make()),
        segment(Value(memory::Segment::Create(segment_bytes))),
        exports(std::make_shared<Exports>(
            [this](const std::string&) { return server_context.get(); })) {
    exports->AddSegment(segment);
    const auto selector = std::make_shared<Selector>([](const std::string&) { return Figured(); });
    selector->Prepare({"test"});
    server = Node::Create({{"test"}, exports, selector});
    client = Node::Create({{"test"}, nullptr, selector});
    calls = std::make_shared<Calls>(server);
  }
  ~World() {
    pump_ends_ = true;
    if (pump_.joinable()) pump_.join();
    std::vector<Ends> all;
    {
      std::lock_guard<std::mutex> lock(mu_);
      all.swap(links_);
    }
    for (const Ends& ends : all) {
      client->RemoveLink(ends.client);
      server->RemoveLink(ends.server);
    }
    all.clear();
    Eventually("all that was offered is let go",
               [this] { return server->Count().offers_open == 0; });
    // What is under way ends in threads of the calls, which must not end those.
    Eventually("receivers go", [this] { return calls.use_count() == 1; });
    Eventually("links go", [this] {
      return std::all_of(ever_.begin(), ever_.end(),
                         [](const std::weak_ptr<Link>& link) { return link.expired(); });
    });
    // A thread of a hostile context may be destroying a connection now, so it stays.
    static std::mutex mu;
    static auto* const kept = new std::vector<std::unique_ptr<fabric::Context>>;
    std::lock_guard<std::mutex> lock(mu);
    kept->push_back(std::move(server_context));
    kept->push_back(std::move(client_context));
  }

  Ends Connect(const char* fabric = "test", double far_us = 0) {
    fabric::testing::Pair pair = fabric::testing::Attach(*server_context, *client_context);
    return Add(fabric, std::move(pair.acceptor), std::move(pair.connector), far_us);
  }
  // A link over which nothing moves.
  Ends ConnectTcp() { return Add("tcp", nullptr, nullptr); }
  void Disconnect(const Ends& ends, bool server_first = false) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      for (size_t i = 0; i < links_.size(); ++i) {
        if (links_[i].server != ends.server) continue;
        links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      }
    }
    if (server_first) server->RemoveLink(ends.server);
    client->RemoveLink(ends.client);
    server->RemoveLink(ends.server);
  }

  // Takes the messages that have come, as the endpoints of gRPC do.
  void Pump() {
    std::vector<Ends> all;
    {
      std::lock_guard<std::mutex> lock(mu_);
      all = links_;
    }
    for (const Ends& ends : all) {
      std::vector<Offers::Held> released;
      size_t taken = 0;
      (void)server->TakeMessages(ends.server.get(), kMostMessages, &released, &taken).ok();
      (void)ends.client->FlushMessages().ok();
    }
  }
  // Pumps in a thread of its own from now on.
  void KeepPumping() {
    pump_ = std::thread([this] {
      while (!pump_ends_) {
        Pump();
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
  }

  // Memory of the segment, each time other memory.
  std::shared_ptr<uint8_t> Allocate(uint64_t size) {
    const uint64_t offset = used_.fetch_add((size + 63) / 64 * 64);
    if (offset + size > segment->size()) return nullptr;
    AwaitRegistered(segment->data() + offset, size);
    return std::shared_ptr<uint8_t>(segment->data() + offset, [kept = segment](uint8_t*) {});
  }

  // A source with the pattern of `seed`.
  Source MakeSource(uint64_t size, uint64_t seed, bool in_segment) {
    std::shared_ptr<uint8_t> memory = in_segment ? Allocate(size) : nullptr;
    if (memory == nullptr) {
      memory = std::shared_ptr<uint8_t>(new uint8_t[size], std::default_delete<uint8_t[]>());
    }
    for (uint64_t i = 0; i < size; ++i) memory.get()[i] = Pattern(i, seed);
    Source source;
    source.alive = memory;
    source.buffer = {memory.get(), size, memory};
    return source;
  }

  // By which much is under way at the same time: eight parts of 256 KiB of a read, and eight chunks
  // of 1 MiB, since a stream of 100 MB/s takes 10 ms for one and a call 154 us.
  static Figures Figured() {
    Figures figures = AssumedVerbs();
    figures.get = {0, 0, 25000};
    figures.wake_us = 0.1;
    figures.send.bytes_per_us = 100;
    figures.copy_bytes_per_us = 10;
    return figures;
  }
  // What is readable is read, what is in no segment is staged, else chunks.
  static Scheme AlwaysOffer(const Link* link, const Situation& situation) {
    if (link == nullptr || !situation.can_read) return Scheme::kChunked;
    return situation.in_segment ? Scheme::kRead : Scheme::kStagedRead;
  }
  Sender MakeSender(Sender::Choose choose = AlwaysOffer) {
    return Sender(server, [this](uint64_t size) { return Allocate(size); }, std::move(choose));
  }
  std::shared_ptr<Receiver> MakeReceiver(RunInPool run_in_pool = nullptr,
                                         std::shared_ptr<WriteGate> gate = nullptr,
                                         bool sender_waits = false) {
    Receiver::Options options;
    options.node = client;
    options.caller = calls;
    options.task = "/job:ps";
    options.run_in_pool = std::move(run_in_pool);
    options.gate = std::move(gate);
    options.sender_waits = sender_waits;
    options.chunks = {uint64_t{1} << 20, 4};
    return Receiver::Create(std::move(options));
  }

  std::unique_ptr<fabric::Context> server_context;
  std::unique_ptr<fabric::Context> client_context;
  std::shared_ptr<memory::Segment> segment;
  std::shared_ptr<Exports> exports;
  std::shared_ptr<Node> server;
  std::shared_ptr<Node> client;
  std::shared_ptr<Calls> calls;

 private:
  // A real fabric that pins pages registers memory in a thread of its own. What else pins is a
  // test's, which says itself what is registered.
  void AwaitRegistered(const uint8_t* data, uint64_t size) {
    const bool real = dynamic_cast<BorrowedContext*>(server_context.get()) != nullptr;
    if (!real || !exports->pins()) return;
    exports->Carved(data, size);
    Eventually("memory is registered",
               [&] { return exports->Registered(server_context.get(), data, size); });
  }

  Ends Add(const char* fabric, std::unique_ptr<fabric::Connection> server_end,
           std::unique_ptr<fabric::Connection> client_end, double far_us = 0) {
    const LinkId id = NewToken();
    Ends ends;
    Link::Description description{End::kServer, client->id(), "client:1", fabric, id, kFeatures};
    description.far_us = far_us;
    ends.server = std::make_shared<Link>(description, std::move(server_end));
    description.end = End::kClient;
    description.peer = server->id();
    description.address = "server:1";
    ends.client = std::make_shared<Link>(description, std::move(client_end));
    server->AddLink(ends.server);
    client->AddLink(ends.client);
    std::lock_guard<std::mutex> lock(mu_);
    links_.push_back(ends);
    ever_.push_back(ends.server);
    ever_.push_back(ends.client);
    return ends;
  }

  std::atomic<uint64_t> used_{0};
  std::mutex mu_;
  std::vector<Ends> links_;                // guarded by mu_
  std::vector<std::weak_ptr<Link>> ever_;  // guarded by mu_
  std::thread pump_;
  std::atomic<bool> pump_ends_{false};
};

inline bool HasPattern(const uint8_t* bytes, uint64_t size, uint64_t seed) {
  for (uint64_t i = 0; i < size; ++i) {
    if (bytes[i] != Pattern(i, seed)) return false;
  }
  return true;
}

// Kept memory for a RecvTensor, or the caller's own for a RecvBuf.
struct Destination {
  explicit Destination(uint64_t size, bool kept)
      : bytes(std::make_shared<std::vector<uint8_t>>(size, 0xEE)) {
    target.into = bytes->data();
    target.size = size;
    if (kept) target.keep = bytes;
  }
  std::shared_ptr<std::vector<uint8_t>> bytes;
  TargetBuffer target;
};

}  // namespace ar_grpc::protocol::testing

#endif  // TESTS_UNITS_TRANSFER_TESTING_H_
