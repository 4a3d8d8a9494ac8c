// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/shared_connection.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/method_handler.h>
#include <grpcpp/impl/codegen/service_type.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "src/core/lib/iomgr/ev_posix.h"
#include "tests/conformance/testing.h"

namespace ar_grpc::testing {
namespace {

using fabric::testing::Check;

constexpr char kMethod[] = "/shared/Get";
constexpr char kNow[] = "now";
constexpr char kLater[] = "later";  // when the test says so

// Answers with the request.
class Echo final : public grpc::Service {
 public:
  Echo() {
    using Handler = grpc::internal::RpcMethodHandler<Echo, grpc::ByteBuffer, grpc::ByteBuffer>;
    const auto get = [](Echo* self, grpc::ServerContext*, const grpc::ByteBuffer* request,
                        grpc::ByteBuffer* answer) { return self->Get(*request, answer); };
    AddMethod(new grpc::internal::RpcServiceMethod(kMethod, grpc::internal::RpcMethod::NORMAL_RPC,
                                                   new Handler(get, this)));
  }
  void Answer() {
    const std::lock_guard lock(mu_);
    answers_ = true;
    changed_.notify_all();
  }
  void AwaitRequest() {
    std::unique_lock lock(mu_);
    const bool came = changed_.wait_for(lock, std::chrono::seconds(20), [this] { return waits_; });
    Check(came, "the request");
  }

 private:
  grpc::Status Get(const grpc::ByteBuffer& request, grpc::ByteBuffer* answer) {
    grpc::Slice text;
    Check(request.DumpToSingleSlice(&text).ok(), "a request");
    if (std::string(text.begin(), text.end()) == kLater) {
      std::unique_lock lock(mu_);
      waits_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return answers_; });
    }
    *answer = request;
    return grpc::Status::OK;
  }

  std::mutex mu_;
  std::condition_variable changed_;
  bool waits_ = false;    // guarded by mu_
  bool answers_ = false;  // guarded by mu_
};

grpc_poll_function_type real_poll;
thread_local std::atomic<int>* polls_of_thread = nullptr;

int CountingPoll(pollfd* fds, nfds_t count, int timeout_ms) {
  if (polls_of_thread != nullptr) ++*polls_of_thread;
  return real_poll(fds, count, timeout_ms);
}

// A queue with a thread that does nothing but handle its events.
class Queue {
 public:
  explicit Queue(grpc::GenericStub* stub) : stub_(stub) {}
  ~Queue() {
    queue_.Shutdown();
    thread_.join();
  }

  // The thread runs `then`, if there is one, when it has been answered.
  std::future<void> Call(const char* text, std::function<void()> then = nullptr) {
    auto* const call = new OneCall;
    call->then = std::move(then);
    const grpc::Slice slice(text);
    call->reader =
        stub_->PrepareUnaryCall(&call->context, kMethod, grpc::ByteBuffer(&slice, 1), &queue_);
    std::future<void> ended = call->ended.get_future();
    call->reader->StartCall();
    call->reader->Finish(&call->answer, &call->status, call);
    return ended;
  }
  int polls() const { return polls_; }

 private:
  struct OneCall {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer answer;
    grpc::Status status;
    std::function<void()> then;
    std::promise<void> ended;
  };

  void Work() {
    polls_of_thread = &polls_;
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
      const std::unique_ptr<OneCall> call(static_cast<OneCall*>(tag));
      Check(ok && call->status.ok(), call->status.error_message());
      call->ended.set_value();
      if (call->then) call->then();
    }
  }

  grpc::GenericStub* const stub_;
  grpc::CompletionQueue queue_;
  std::atomic<int> polls_{0};
  std::thread thread_{[this] { Work(); }};
};

struct World {
  Echo service;
  int port = 0;
  std::unique_ptr<grpc::Server> server = [this] {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&service);
    return builder.BuildAndStart();
  }();
  grpc::GenericStub stub{
      grpc::CreateChannel("127.0.0.1:" + std::to_string(port), grpc::InsecureChannelCredentials())};
};

void Await(const std::future<void>& ended, const char* what) {
  Check(ended.wait_for(std::chrono::seconds(20)) == std::future_status::ready, what);
}

// A queue that has called before is not woken for the calls of another.
void OthersRest() {
  World world;
  // Only now: gRPC's configuration, which a server makes, installs ours.
  real_poll = std::exchange(grpc_poll_function, CountingPoll);
  Queue resting(&world.stub);
  Queue busy(&world.stub);
  constexpr int kCalls = 300;
  for (int round = 0; round < 3; ++round) {
    Await(resting.Call(kNow), "a call of the queue that rests");
    // Until they have taken turns.
    for (int i = 0; i < 10; ++i) Await(busy.Call(kNow), "a call");
    const int before = resting.polls();
    for (int i = 0; i < kCalls; ++i) Await(busy.Call(kNow), "a call");
    const int woken = resting.polls() - before;
    std::printf("round=%d calls=%d woken=%d\n", round, kCalls, woken);
    if (grpc_get_poll_strategy_name() != std::string("poll")) continue;
    Check(busy.polls() > 0, "polls are counted");
    Check(woken < kCalls / 20, "not once for every call");
  }
}

// A thread that does not come back to its queue keeps no other queue's call waiting: neither one
// that was under way, nor one that begins when the queue had none.
void StuckOutsideOfItsQueue() {
  World world;
  Queue other(&world.stub);
  Queue stuck(&world.stub);
  for (int round = 0; round < 20; ++round) {
    const bool under_way = round == 0;
    std::future<void> call;
    if (under_way) {
      call = other.Call(kLater);
      world.service.AwaitRequest();
    } else {
      Await(other.Call(kNow), "a call");
    }
    for (int i = 0; i < 10; ++i) Await(stuck.Call(kNow), "a call of the only one that calls");
    std::promise<void> back;
    const std::shared_future<void> goes_on = back.get_future().share();
    Await(stuck.Call(kNow, [goes_on] { goes_on.wait(); }), "its last call");
    if (under_way) {
      world.service.Answer();
    } else {
      call = other.Call(kNow);
    }
    Await(call, "the other queue's call");
    back.set_value();
  }
}

}  // namespace

bool RunSharedConnectionCase(const std::string& name) {
  if (name != "shared-rest" && name != "shared-stuck") return false;
  if (name == "shared-rest") {
    OthersRest();
  } else {
    StuckOutsideOfItsQueue();
  }
  std::printf("ok %s\n", name.c_str());
  return true;
}

}  // namespace ar_grpc::testing
