// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/switch.h"

#include <arpa/inet.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/grpc/channel_args.h"

namespace ar_grpc::testing {
namespace {

using fabric::testing::Check;

gpr_timespec In(int ms) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

// Arguments with AR-gRPC on (a node), switched off (a node, and 0), or without it.
class Settings {
 public:
  explicit Settings(std::shared_ptr<protocol::Node> node, bool enable = true)
      : node_(std::move(node)) {
    if (node_ != nullptr) args_.push_back(NodeArg(node_));
    grpc_arg arg;
    arg.type = GRPC_ARG_INTEGER;
    arg.key = const_cast<char*>(kEnableArg);
    arg.value.integer = enable ? 1 : 0;
    args_.push_back(arg);
  }
  const grpc_channel_args* get() {
    all_ = {args_.size(), args_.data()};
    return &all_;
  }

 private:
  const std::shared_ptr<protocol::Node> node_;
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

// How a channel begins to talk to a listener that says nothing.
std::string FirstBytes(Settings settings, Queue* queue) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  Check(bind(listener.get(), any, size) == 0 && listen(listener.get(), 8) == 0 &&
            getsockname(listener.get(), any, &size) == 0,
        "a listener");
  Channel channel(std::move(settings), ntohs(address.sin_port));
  const auto readable = [queue](int fd) {
    for (int i = 0; i < 500; ++i) {
      if (fabric::testing::Readable(fd, 0)) return true;
      (void)queue->Work(20);
    }
    return false;
  };
  Check(readable(listener.get()), "a connection");
  UniqueFd connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  std::string bytes;
  while (bytes.size() < 8) {
    Check(readable(connection.get()), "bytes");
    char some[8];
    const ssize_t got = recv(connection.get(), some, sizeof(some) - bytes.size(), 0);
    Check(got > 0, "not closed");
    bytes.append(some, static_cast<size_t>(got));
  }
  // A channel that goes while it waits for the peer's settings keeps gRPC up for 20 s.
  connection.reset();
  listener.reset();
  channel.Await(GRPC_CHANNEL_TRANSIENT_FAILURE, queue);
  return bytes;
}

uint64_t Links(const std::shared_ptr<protocol::Node>& node) { return node->Count().links; }

void OnAndOffBesideEachOther(const std::string& fabric) {
  const auto serving = protocol::Node::Create({{fabric, "tcp"}});
  const auto one = protocol::Node::Create({{fabric, "tcp"}});
  const auto other = protocol::Node::Create({{fabric, "tcp"}});
  Queue queue;
  {
    Server on(Settings(serving), &queue);
    Server off(Settings(nullptr), &queue);
    const std::string address = "ipv4:127.0.0.1:" + std::to_string(on.port());
    Channel first(Settings(one), on.port());
    first.AwaitReady(&queue);
    Check(Links(one) == 1 && one->Paths()[address] == fabric, "over the fabric");
    Channel second(Settings(other), on.port());
    second.AwaitReady(&queue);
    Check(Links(other) == 1 && Links(one) == 1, "another node, another connection");
    Check(Links(serving) == 2, "the server knows both");
    for (const bool switched_off : {true, false}) {
      Channel plain(switched_off ? Settings(one, false) : Settings(nullptr), on.port());
      plain.AwaitReady(&queue);
      Check(Links(one) == 1 && Links(serving) == 2, "plain to a server that has it on");
    }
    Channel to_plain(Settings(one), off.port());
    to_plain.AwaitReady(&queue);
    Check(Links(one) == 1, "plain to a server that has it off");
  }
  Check(FirstBytes(Settings(one), &queue) == "AR-gRPC\n", "a hello");
  Check(FirstBytes(Settings(one, false), &queue) == "PRI * HT", "no hello: off");
  Check(FirstBytes(Settings(nullptr), &queue) == "PRI * HT", "no hello: no node");
}

}  // namespace

bool RunSwitchCase(const std::string& fabric, const std::string& name) {
  if (name != "switch" || fabric != "shm") return false;
  OnAndOffBesideEachOther(fabric);
  std::printf("ok %s over %s\n", name.c_str(), fabric.c_str());
  return true;
}

}  // namespace ar_grpc::testing
