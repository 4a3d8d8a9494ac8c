// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_QUEUE_ENDS_H_
#define TESTS_GRPC_SUITES_QUEUE_ENDS_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/server_builder_option.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/grpc/channel_args.h"
#include "third_party/ar_grpc/protocol/node.h"

// Channels and servers by gRPC's C++ surface, with AR-gRPC or without, and completion queues of
// either with threads of their own.
namespace ar_grpc::testing {

using fabric::testing::Check;

inline constexpr int kPatienceS = 20;
// What clients call; its requests and answers are bytes.
inline constexpr char kMethod[] = "/queues/Call";

inline void Await(const std::future<void>& ended, const char* what) {
  Check(ended.wait_for(std::chrono::seconds(kPatienceS)) == std::future_status::ready, what);
}

// Whether the ends speak AR-gRPC, over shared memory, or plain gRPC. An AR endpoint brings
// descriptors of its own, which are there only after the handshake.
enum class Speak { kAr, kPlain };

inline std::shared_ptr<protocol::Node> NodeFor(Speak speak) {
  return speak == Speak::kAr ? protocol::Node::Create({{"shm"}}) : nullptr;
}

// Turns AR-gRPC on for these arguments, as `node`; not without one.
inline void SetNode(std::shared_ptr<protocol::Node> node, grpc::ChannelArguments* args) {
  if (node != nullptr) args->SetPointerWithVtable(kNodeArg, &node, NodeArgVtable());
}

class ServerNode final : public grpc::ServerBuilderOption {
 public:
  explicit ServerNode(std::shared_ptr<protocol::Node> node) : node_(std::move(node)) {}
  void UpdateArguments(grpc::ChannelArguments* args) override { SetNode(node_, args); }
  void UpdatePlugins(std::vector<std::unique_ptr<grpc::ServerBuilderPlugin>>*) override {}

 private:
  const std::shared_ptr<protocol::Node> node_;
};

// A server's builder, and a channel to the server that it starts.
class Port {
 public:
  explicit Port(Speak speak) : client_(NodeFor(speak)) {
    builder_.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    // Else the server's thread polls anew every 10 s, and finds what nobody polled for.
    builder_.SetSyncServerOption(grpc::ServerBuilder::CQ_TIMEOUT_MSEC, 10 * kPatienceS * 1000);
    builder_.SetOption(std::make_unique<ServerNode>(NodeFor(speak)));
  }
  grpc::ServerBuilder* builder() { return &builder_; }
  // A channel with a connection of its own.
  std::shared_ptr<grpc::Channel> Connect() const {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    SetNode(client_, &args);
    return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port_),
                                     grpc::InsecureChannelCredentials(), args);
  }
  // While a channel is connected: with AR-gRPC it has left TCP.
  void CheckPath() const {
    if (client_ != nullptr) Check(client_->Count().links > 0, "over shared memory");
  }

 private:
  const std::shared_ptr<protocol::Node> client_;
  grpc::ServerBuilder builder_;
  int port_ = 0;
};

// What counts the polls of the calling thread, if anything does.
inline thread_local std::atomic<int>* polls_of_thread = nullptr;

// A queue of calls, with threads that do nothing but handle its events.
class ClientQueue {
 public:
  explicit ClientQueue(grpc::GenericStub* stub, int threads = 1) : stub_(stub) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~ClientQueue() {
    queue_.Shutdown();
    for (std::thread& thread : threads_) thread.join();
  }

  // One of the threads runs `then`, if there is one, when the call has been answered.
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
  std::vector<std::thread> threads_;
};

// A server's queue whose thread handles one call at a time, and only those asked for.
class ServingQueue {
 public:
  explicit ServingQueue(std::unique_ptr<grpc::ServerCompletionQueue> queue)
      : queue_(std::move(queue)) {}
  void Start() {
    thread_ = std::thread([this] { Work(); });
  }
  // After the server's shutdown.
  void End() {
    queue_->Shutdown();
    thread_.join();
  }

  // Takes the next call that comes to the server; when it has been answered, the thread runs
  // `then`.
  void Serve(grpc::AsyncGenericService* service, std::function<void()> then = nullptr) {
    auto* const call = new Call;
    call->then = std::move(then);
    service->RequestCall(&call->context, &call->stream, queue_.get(), queue_.get(), call);
  }

 private:
  struct Call {
    grpc::GenericServerContext context;
    grpc::GenericServerAsyncReaderWriter stream{&context};
    std::function<void()> then;
    bool came = false;
  };

  void Work() {
    void* tag;
    bool ok;
    while (queue_->Next(&tag, &ok)) {
      std::unique_ptr<Call> call(static_cast<Call*>(tag));
      if (ok && !std::exchange(call->came, true)) {
        const grpc::Slice slice("answer");
        call->stream.WriteAndFinish(grpc::ByteBuffer(&slice, 1), {}, grpc::Status::OK, call.get());
        (void)call.release();
      } else if (call->then) {
        call->then();
      }
    }
  }

  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::thread thread_;
};

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_QUEUE_ENDS_H_
