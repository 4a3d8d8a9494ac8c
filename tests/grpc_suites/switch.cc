// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/switch.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/support/time.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/core/lib/gpr/useful.h"
#include "src/core/lib/security/credentials/credentials.h"
#include "src/core/lib/security/security_connector/security_connector.h"
#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/grpc/channel_args.h"
#include "third_party/ar_grpc/protocol/hello.h"

namespace {

// What TheReactorWritesNothingToTcp looks for, and what it has seen; 0: it does not look.
std::atomic<pid_t> reactors_thread{0};
std::atomic<int> sent_over_tcp{0};
std::atomic<int> sent_by_reactor{0};

bool IsTcp(int fd) {
  int domain = 0;
  socklen_t size = sizeof(domain);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 &&
         (domain == AF_INET || domain == AF_INET6);
}

}  // namespace

// In place of the C library's in this program: gRPC writes to TCP by it.
extern "C" ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  if (const pid_t thread = reactors_thread; thread != 0 && IsTcp(fd)) {
    ++(gettid() == thread ? sent_by_reactor : sent_over_tcp);
  }
  static const auto real = reinterpret_cast<decltype(&sendmsg)>(dlsym(RTLD_NEXT, "sendmsg"));
  return real(fd, message, flags);
}

namespace ar_grpc::testing {
namespace {

using fabric::testing::Check;
using fabric::testing::CheckOk;

gpr_timespec In(int ms) {
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
std::string Receive(int fd, size_t size, Queue* queue, int line = __builtin_LINE()) {
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

// How a channel begins to talk to a listener that says nothing.
std::string FirstBytes(Settings settings, Queue* queue) {
  Listener listener;
  Channel channel(std::move(settings), listener.port());
  UniqueFd connection = listener.Accept(queue);
  const std::string bytes = Receive(connection.get(), 8, queue);
  Check(bytes.size() == 8, "not closed");
  // A channel that goes while it waits for the peer's settings keeps gRPC up for 20 s.
  connection.reset();
  listener.Close();
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

// "grpc.ar.fabrics" narrows what the node allows, for one channel or server alone.
void FabricsOfOneChannel(const std::string& fabric) {
  const auto serving = protocol::Node::Create({{fabric, "tcp"}});
  const auto node = protocol::Node::Create({{fabric, "tcp"}});
  const auto only_tcp = protocol::Node::Create({{"tcp"}});
  Queue queue;
  {
    Server any(Settings(serving), &queue);
    Server narrow(Settings(serving, true, "tcp"), &queue);
    const auto path = [&](const Server& server) {
      return node->Paths()["ipv4:127.0.0.1:" + std::to_string(server.port())];
    };
    // Beside each other, of one node and to one server.
    Channel wide(Settings(node), any.port());
    wide.AwaitReady(&queue);
    Check(path(any) == fabric && Links(node) == 1, "as the node has it");
    Channel tcp(Settings(node, true, "tcp"), any.port());
    tcp.AwaitReady(&queue);
    Check(path(any) == "tcp" && Links(node) == 2, "tcp by the channel's own argument");
    Channel forced(Settings(node, true, "^tcp"), any.port());
    forced.AwaitReady(&queue);
    Check(path(any) == fabric && Links(node) == 3, "all but tcp");
    // The server's argument counts as much.
    Channel refused(Settings(node), narrow.port());
    refused.AwaitReady(&queue);
    Check(path(narrow) == "tcp" && Links(node) == 4, "tcp by the server's argument");
    Channel impossible(Settings(node, true, fabric), narrow.port());
    impossible.Await(GRPC_CHANNEL_TRANSIENT_FAILURE, &queue);
    // Neither more than the node allows, nor a name that is none.
    Channel more(Settings(only_tcp, true, fabric), any.port());
    more.Await(GRPC_CHANNEL_TRANSIENT_FAILURE, &queue);
    Channel unknown(Settings(node, true, "pigeon"), any.port());
    unknown.Await(GRPC_CHANNEL_TRANSIENT_FAILURE, &queue);
    Check(Links(node) == 4 && Links(only_tcp) == 0, "no link of these");
  }
}

// A server's security of this kind. This library's own gRPC is built without any that encrypts.
class Security final : public grpc_server_security_connector {
 public:
  explicit Security(const char* scheme) : grpc_server_security_connector(scheme, nullptr) {}
  void add_handshakers(const grpc_core::ChannelArgs&, grpc_pollset_set*,
                       grpc_core::HandshakeManager*) override {}
  void check_peer(tsi_peer, grpc_endpoint*, const grpc_core::ChannelArgs&,
                  grpc_core::RefCountedPtr<grpc_auth_context>*, grpc_closure*) override {}
  void cancel_check_peer(grpc_closure*, grpc_error_handle) override {}
  int cmp(const grpc_security_connector* other) const override {
    return grpc_core::QsortCompare(static_cast<const grpc_security_connector*>(this), other);
  }
};

// Verbs carries bytes and keys past TLS.
void FabricsUnderTls() {
  using Names = std::vector<std::string>;
  const auto node = protocol::Node::Create({{"shm", "verbs", "tcp"}});
  const auto allowed = [&](const char* scheme, const std::string& narrowed) {
    grpc_core::ChannelArgs args;
    args = args.SetObject(grpc_core::RefCountedPtr<grpc_security_connector>(new Security(scheme)));
    if (!narrowed.empty()) args = args.Set(kFabricsArg, narrowed);
    return *FabricsOf(args, *node);
  };
  static auto& logged = *new std::vector<std::string>;  // this thread alone logs here
  SetLogSink([](Severity, const std::string& line) { logged.push_back(line); });
  Check(allowed("http", "") == Names{"shm", "verbs", "tcp"}, "in the clear");
  Check(logged.empty(), "nothing to say");
  Check(allowed(GRPC_SSL_URL_SCHEME, "") == Names{"shm", "tcp"}, "under TLS");
  Check(allowed(GRPC_SSL_URL_SCHEME, "^tcp") == Names{"shm"}, "not named by what it leaves out");
  Check(allowed(GRPC_SSL_URL_SCHEME, "verbs,tcp") == Names{"verbs", "tcp"}, "named");
  Check(*FabricsOf(grpc_core::ChannelArgs(), *node) == Names{"shm", "verbs", "tcp"}, "no security");
  // Once in the life of a process.
  Check(logged == Names{"verbs is not used under TLS, which does not cover it, unless "
                        "grpc.ar.fabrics names it"},
        "said");
}

void Work(Queue* queue, int ms) {
  const gpr_timespec end = In(ms);
  while (gpr_time_cmp(gpr_now(GPR_CLOCK_MONOTONIC), end) < 0) (void)queue->Work(10);
}

void Send(int fd, const std::string& bytes) {
  Check(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()),
        "sent");
}

protocol::Verdict VerdictNo() {
  protocol::Verdict verdict;
  verdict.attempt = 1;
  verdict.reason = "the test says so";
  return verdict;
}

// The channel goes, or the server, at each point of a handshake: the peer sees the end at once, and
// nothing is left (gRPC's own end waits for what is).
void EndsInTheHandshake(const std::string& fabric) {
  const auto node = protocol::Node::Create({{fabric, "tcp"}});
  Queue queue;
  protocol::Answer answer;
  answer.attempt = 1;
  answer.fabric = fabric;
  const std::string answered = protocol::Encode(answer);
  const std::string invited = answered + protocol::Encode(protocol::Attach{1, "no token"});
  for (const std::string& said : {std::string(), answered.substr(0, 20), answered, invited,
                                  invited + protocol::Encode(VerdictNo())}) {
    for (const bool anew : {false, true}) {
      // Of a server that closes before it has answered: plain TCP, and the handshake is over.
      if (anew && said.size() <= 20) continue;
      Listener listener;
      UniqueFd connection;
      {
        Channel channel(Settings(node), listener.port());
        connection = listener.Accept(&queue);
        Check(Receive(connection.get(), 16, &queue).substr(0, 8) == "AR-gRPC\n", "a hello");
        Send(connection.get(), said);
        Work(&queue, 50);
        if (anew) {
          // It connects again, and nobody accepts.
          connection.reset();
          listener.AwaitNext(&queue);
        }
        Work(&queue, 50);
      }
      if (anew) connection = listener.Accept(&queue);
      (void)Receive(connection.get(), 1 << 20, &queue);
    }
  }
  protocol::Hello hello;
  hello.brochures = {{fabric, *fabric::Find(fabric)->Brochure()}};
  protocol::v1::Hello old;
  old.fabrics = {fabric};
  const std::string greeted = protocol::Encode(hello);
  for (const std::string& said :
       {std::string(), greeted.substr(0, 20), greeted, greeted + protocol::Encode(VerdictNo()),
        protocol::v1::Encode(old)}) {
    UniqueFd connection(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    {
      Server server(Settings(node), &queue);
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(static_cast<uint16_t>(server.port()));
      Check(connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
            "connected");
      Send(connection.get(), said);
      if (said.size() > 20) Listener::AwaitReadable(connection.get(), &queue);
      Work(&queue, 50);
    }
    const std::string heard = Receive(connection.get(), 1 << 20, &queue);
    Check(heard.empty() == (said.size() <= 20), "it was in the handshake");
  }
  Check(Links(node) == 0, "no link");
}

// Both ends of a handshake over `fabric`, whose attachments speak on the reactor's thread: it hands
// on what they say, and threads of gRPC's act on it. Of what they do, this sees the writes to TCP.
void TheReactorWritesNothingToTcp(const std::string& fabric) {
  const auto serving = protocol::Node::Create({{fabric}});
  const auto node = protocol::Node::Create({{fabric}});
  Queue queue;
  RunOnReactor([] { reactors_thread = gettid(); });
  Server server(Settings(serving), &queue);
  const uint64_t rounds = Reactor::Get().rounds();
  for (int i = 0; i < 20; ++i) {
    Channel channel(Settings(node), server.port());
    channel.AwaitReady(&queue);
  }
  reactors_thread = 0;
  // Each end says something of the handshake at least once.
  Check(sent_over_tcp >= 40, "seen to be sent");
  Check(sent_by_reactor == 0, "sent by the reactor's thread");
  Check(Reactor::Get().rounds() >= rounds + 20, "attachments spoke");
}

// A reactor that stands still, as one does whose page fault waits for a disk: gRPC's threads go on.
class StandingReactor {
 public:
  StandingReactor() {
    const auto standing = std::make_shared<std::promise<void>>();
    CheckOk(StartOnReactor([standing, goes_on = goes_on_.get_future().share()] {
      standing->set_value();
      goes_on.wait_for(std::chrono::seconds(20));  // in case that somebody waits for it
    }));
    standing->get_future().wait();
  }
  ~StandingReactor() { goes_on_.set_value(); }

 private:
  std::promise<void> goes_on_;
};

void HandshakesBesideAStandingReactor(const std::string& fabric) {
  using Clock = std::chrono::steady_clock;
  using std::chrono::milliseconds;
  const auto serving = protocol::Node::Create({{fabric, "tcp"}});
  const auto node = protocol::Node::Create({{fabric, "tcp"}});
  Queue queue;
  Server server(Settings(serving), &queue);
  const std::string address = "ipv4:127.0.0.1:" + std::to_string(server.port());
  const auto took = [&](const std::function<void()>& what) {
    const auto start = Clock::now();
    what();
    return Clock::now() - start;
  };
  // The first one makes what all of this process share, on the reactor.
  Channel(Settings(node), server.port()).AwaitReady(&queue);
  Check(node->Paths()[address] == fabric, "over the fabric before");
  {
    const StandingReactor standing;
    const auto plain = took([&] { Channel(Settings(nullptr), server.port()).AwaitReady(&queue); });
    Check(plain < milliseconds(2000), "a channel without AR-gRPC waits for nothing of it");
    // An end in the midst of a handshake, which by then mostly waits for the attachment.
    const auto ended = took([&] {
      Channel channel(Settings(node), server.port());
      Work(&queue, 200);
    });
    Check(ended < milliseconds(2000), "a channel ends");
    // Half of the handshake's five seconds are the fabric's, then it is TCP.
    const auto late = took([&] {
      Channel channel(Settings(node), server.port());
      channel.AwaitReady(&queue);
      Check(node->Paths()[address] == "tcp", "over TCP");
    });
    Check(late > milliseconds(1000) && late < milliseconds(6000), "within the deadline");
    const auto closed = took([&] { Server(Settings(serving), &queue); });
    Check(closed < milliseconds(2000), "a server begins and ends");
  }
  const auto after = took([&] {
    Channel channel(Settings(node), server.port());
    channel.AwaitReady(&queue);
    Check(node->Paths()[address] == fabric, "over the fabric again");
  });
  Check(after < milliseconds(2000), "at once");
}

}  // namespace

bool RunSwitchCase(const std::string& fabric, const std::string& name) {
  if (fabric != "shm") return false;
  if (name == "switch") {
    OnAndOffBesideEachOther(fabric);
  } else if (name == "fabrics") {
    FabricsOfOneChannel(fabric);
  } else if (name == "tls") {
    FabricsUnderTls();
  } else if (name == "ends") {
    EndsInTheHandshake(fabric);
  } else if (name == "reactor") {
    TheReactorWritesNothingToTcp(fabric);
  } else if (name == "standing") {
    HandshakesBesideAStandingReactor(fabric);
  } else {
    return false;
  }
  std::printf("ok %s over %s\n", name.c_str(), fabric.c_str());
  return true;
}

}  // namespace ar_grpc::testing
