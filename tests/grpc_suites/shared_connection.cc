// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/shared_connection.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/method_handler.h>
#include <grpcpp/impl/codegen/service_type.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/core/lib/iomgr/ev_posix.h"
#include "tests/grpc_suites/queue_ends.h"

namespace ar_grpc::testing {
namespace {

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
  // Calls of kLater wait for Answer again.
  void Ask() {
    const std::lock_guard lock(mu_);
    answers_ = waits_ = false;
  }
  void Answer() {
    const std::lock_guard lock(mu_);
    answers_ = true;
    changed_.notify_all();
  }
  void AwaitRequest() {
    std::unique_lock lock(mu_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(kPatienceS), [this] { return waits_; });
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

int CountingPoll(pollfd* fds, nfds_t count, int timeout_ms) {
  if (polls_of_thread != nullptr) ++*polls_of_thread;
  return real_poll(fds, count, timeout_ms);
}

struct World {
  explicit World(Speak speak) : port(speak) {}
  ~World() { port.CheckPath(); }

  Echo service;
  Port port;
  std::unique_ptr<grpc::Server> server = [this] {
    port.builder()->RegisterService(&service);
    return port.builder()->BuildAndStart();
  }();
  grpc::GenericStub stub{port.Connect()};
};

// A queue that has called before is not woken for the calls of another.
void OthersRest(Speak speak) {
  World world(speak);
  // Only now: gRPC's configuration, which a server makes, installs ours.
  if (grpc_poll_function != CountingPoll) {
    real_poll = std::exchange(grpc_poll_function, CountingPoll);
  }
  ClientQueue resting(&world.stub);
  ClientQueue busy(&world.stub);
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
void StuckOutsideOfItsQueue(Speak speak) {
  World world(speak);
  ClientQueue other(&world.stub);
  ClientQueue stuck(&world.stub);
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

// A queue that has a call again is polled by each thread that it has, not by one alone: that one
// may be stuck with another call's answer while the only other queue that polls is stuck, too.
void OneOfTwoThreadsStuck(Speak speak) {
  World world(speak);
  ClientQueue pair(&world.stub, 2);
  ClientQueue other(&world.stub);
  for (int round = 0; round < 20; ++round) {
    Await(pair.Call(kNow), "a call, so that the queue has the connection");
    // With each call another of the pair's threads has left the connection to the other queue.
    for (int i = 0; i < round % 10; ++i) Await(other.Call(kNow), "a call of the only one");
    world.service.Ask();
    const std::future<void> pending = pair.Call(kLater);
    world.service.AwaitRequest();
    std::promise<void> back;
    const std::shared_future<void> goes_on = back.get_future().share();
    const auto stay = [goes_on] { goes_on.wait(); };
    Await(pair.Call(kNow, stay), "the call whose thread does not come back");
    Await(other.Call(kNow, stay), "the other queue's call");
    world.service.Answer();
    Await(pending, "the call that the second thread polls for");
    back.set_value();
  }
}

// Queues that come and go as they like, with threads that are away for a while, lose no answer.
void Crowd(Speak speak) {
  World world(speak);
  constexpr int kQueues = 4;
  constexpr int kRounds = 400;
  std::vector<std::unique_ptr<ClientQueue>> queues;
  for (int i = 0; i < kQueues; ++i) {
    queues.push_back(std::make_unique<ClientQueue>(&world.stub, 1 + i % 2));
  }
  std::vector<std::thread> callers;
  for (int i = 0; i < kQueues; ++i) {
    callers.emplace_back([&queue = *queues[i], i] {
      std::minstd_rand draw(i + 1);
      for (int round = 0; round < kRounds; ++round) {
        std::vector<std::future<void>> calls;
        for (unsigned n = 1 + draw() % 3; n > 0; --n) {
          const std::chrono::microseconds away(draw() % 2 * (draw() % 2000));
          calls.push_back(queue.Call(kNow, [away] { std::this_thread::sleep_for(away); }));
        }
        for (const std::future<void>& call : calls) Await(call, "a call in the crowd");
        std::this_thread::sleep_for(std::chrono::microseconds(draw() % 500));
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// The queue that accepted a connection goes on to poll it, whichever queue its calls come to.
void AcceptedByAnotherQueue(Speak speak) {
  grpc::AsyncGenericService service;
  Port port(speak);
  port.builder()->RegisterAsyncGenericService(&service);
  ServingQueue queues[] = {ServingQueue(port.builder()->AddCompletionQueue()),
                           ServingQueue(port.builder()->AddCompletionQueue())};
  const std::unique_ptr<grpc::Server> server = port.builder()->BuildAndStart();
  for (ServingQueue& queue : queues) queue.Start();
  // gRPC has the queues take turns in accepting.
  for (int accepting = 0; accepting < 2; ++accepting) {
    grpc::GenericStub stub(port.Connect());
    ClientQueue client(&stub);
    std::promise<void> back;
    const std::shared_future<void> goes_on = back.get_future().share();
    ServingQueue& other = queues[1 - accepting];
    // Until they have taken turns.
    for (int i = 0; i < 10; ++i) {
      other.Serve(&service);
      Await(client.Call(kNow), "a call that comes to the other queue");
    }
    other.Serve(&service, [goes_on] { goes_on.wait(); });
    Await(client.Call(kNow), "the call whose thread does not come back");
    queues[accepting].Serve(&service);
    Await(client.Call(kNow), "a call that comes to the queue that accepted");
    port.CheckPath();
    back.set_value();
  }
  server->Shutdown();
  for (ServingQueue& queue : queues) queue.End();
}

const std::map<std::string, void (*)(Speak)> kCases{
    {"shared-rest", OthersRest},
    {"shared-stuck", StuckOutsideOfItsQueue},
    {"shared-pair", OneOfTwoThreadsStuck},
    {"shared-crowd", Crowd},
    {"shared-accepted", AcceptedByAnotherQueue},
};

}  // namespace

bool RunSharedConnectionCase(const std::string& name) {
  const auto found = kCases.find(name);
  if (found == kCases.end()) return false;
  for (const Speak speak : {Speak::kPlain, Speak::kAr}) found->second(speak);
  std::printf("ok %s\n", name.c_str());
  return true;
}

}  // namespace ar_grpc::testing
