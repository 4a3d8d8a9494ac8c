// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_CORE_ENDS_H_
#define TESTS_GRPC_SUITES_CORE_ENDS_H_

#include <arpa/inet.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/grpc/channel_args.h"
#include "third_party/ar_grpc/protocol/node.h"

// Channels and servers by gRPC's core surface, with AR-gRPC or without, and bare TCP to talk to
// them.
namespace ar_grpc::testing {

using fabric::testing::Check;

inline gpr_timespec In(int ms) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

// Arguments with AR-gRPC on (a node), switched off (a node, and 0), or without it.
class Settings {
 public:
  explicit Settings(std::shared_ptr<protocol::Node> node, bool enable = true,
                    std::string fabrics = "")
      : node_(std::move(node)), fabrics_(std::move(fabrics)) {
    if (node_ != nullptr) args_.push_back(NodeArg(node_));
    Add(kEnableArg, enable ? 1 : 0);
    // Else a channel may get the connection of one that has gone.
    Add(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  }
  const grpc_channel_args* get() {
    if (!fabrics_.empty()) {
      grpc_arg arg;
      arg.type = GRPC_ARG_STRING;
      arg.key = const_cast<char*>(kFabricsArg);
      arg.value.string = fabrics_.data();
      args_.push_back(arg);
    }
    all_ = {args_.size(), args_.data()};
    return &all_;
  }

 private:
  void Add(const char* key, int value) {
    grpc_arg arg;
    arg.type = GRPC_ARG_INTEGER;
    arg.key = const_cast<char*>(key);
    arg.value.integer = value;
    args_.push_back(arg);
  }

  const std::shared_ptr<protocol::Node> node_;
  std::string fabrics_;
  std::vector<grpc_arg> args_;
  grpc_channel_args all_{};
};

class Queue {
 public:
  Queue() : queue_(grpc_completion_queue_create_for_next(nullptr)) {}
  ~Queue() {
    grpc_completion_queue_shutdown(queue_);
    while (grpc_completion_queue_next(queue_, In(10000), nullptr).type != GRPC_QUEUE_SHUTDOWN) {
    }
    grpc_completion_queue_destroy(queue_);
  }
  grpc_completion_queue* get() const { return queue_; }
  // Works for so long, or until something ends.
  bool Work(int ms) {
    return grpc_completion_queue_next(queue_, In(ms), nullptr).type == GRPC_OP_COMPLETE;
  }

 private:
  grpc_completion_queue* const queue_;
};

class Server {
 public:
  Server(Settings settings, Queue* queue)
      : queue_(queue), server_(grpc_server_create(settings.get(), nullptr)) {
    grpc_server_register_completion_queue(server_, queue->get(), nullptr);
    grpc_server_credentials* const credentials = grpc_insecure_server_credentials_create();
    port_ = grpc_server_add_http2_port(server_, "127.0.0.1:0", credentials);
    grpc_server_credentials_release(credentials);
    Check(port_ > 0, "a port");
    grpc_server_start(server_);
  }
  ~Server() {
    grpc_server_cancel_all_calls(server_);
    grpc_server_shutdown_and_notify(server_, queue_->get(), nullptr);
    Check(queue_->Work(10000), "the server ends");
    grpc_server_destroy(server_);
  }
  int port() const { return port_; }

 private:
  Queue* const queue_;
  grpc_server* const server_;
  int port_ = 0;
};

class Channel {
 public:
  Channel(Settings settings, int port) {
    grpc_channel_credentials* const credentials = grpc_insecure_credentials_create();
    const std::string target = "127.0.0.1:" + std::to_string(port);
    channel_ = grpc_channel_create(target.c_str(), credentials, settings.get());
    grpc_channel_credentials_release(credentials);
    (void)grpc_channel_check_connectivity_state(channel_, /*try_to_connect=*/1);
  }
  ~Channel() { grpc_channel_destroy(channel_); }
  void AwaitReady(Queue* queue, int line = __builtin_LINE()) {
    Await(GRPC_CHANNEL_READY, queue, line);
  }
  void Await(grpc_connectivity_state wanted, Queue* queue, int line = __builtin_LINE()) {
    const gpr_timespec end = In(10000);
    grpc_connectivity_state state;
    while ((state = grpc_channel_check_connectivity_state(channel_, 1)) != wanted) {
      Check(gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), end) < 0, "its state in time", line);
      grpc_channel_watch_connectivity_state(channel_, state, In(1000), queue->get(), nullptr);
      (void)queue->Work(10000);
    }
  }

 private:
  grpc_channel* channel_;
};

// A TCP listener, and what of a connection is not gRPC's.
class Listener {
 public:
  int port() const { return ntohs(listener_.address.sin_port); }
  // A connection waits to be accepted.
  void AwaitNext(Queue* queue) { AwaitReadable(listener_.socket.get(), queue); }
  UniqueFd Accept(Queue* queue) {
    AwaitNext(queue);
    return UniqueFd(accept4(listener_.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  void Close() { listener_.socket.reset(); }

  // While `queue` works, so that gRPC does.
  static void AwaitReadable(int fd, Queue* queue, int line = __builtin_LINE()) {
    for (int i = 0; i < 500; ++i) {
      if (fabric::testing::Readable(fd, 0)) return;
      (void)queue->Work(20);
    }
    Check(false, "readable in time", line);
  }

 private:
  fabric::testing::LoopbackListener listener_ = fabric::testing::ListenOnLoopback(/*backlog=*/8);
};

// `size` bytes; fewer where the peer closes before.
inline std::string Receive(int fd, size_t size, Queue* queue, int line = __builtin_LINE()) {
  std::string bytes;
  while (bytes.size() < size) {
    Listener::AwaitReadable(fd, queue, line);
    char some[256];
    const ssize_t got = recv(fd, some, std::min(sizeof(some), size - bytes.size()), 0);
    if (got <= 0) break;
    bytes.append(some, static_cast<size_t>(got));
  }
  return bytes;
}

inline void Work(Queue* queue, int ms) {
  const gpr_timespec end = In(ms);
  while (gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), end) < 0) (void)queue->Work(10);
}

inline void Send(int fd, const std::string& bytes) {
  Check(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
        "sent");
}

inline uint64_t Links(const std::shared_ptr<protocol::Node>& node) { return node->Count().links; }

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_CORE_ENDS_H_
