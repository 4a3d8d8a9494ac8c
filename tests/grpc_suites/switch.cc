// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/switch.h"

#include <grpc/grpc_security.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "src/core/lib/gpr/useful.h"
#include "src/core/lib/security/credentials/credentials.h"
#include "src/core/lib/security/security_connector/security_connector.h"
#include "tests/grpc_suites/core_ends.h"
#include "tests/grpc_suites/handshake_cases.h"
#include "third_party/ar_grpc/base/log.h"

namespace ar_grpc::testing {
namespace {

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
    Check(Links(one) == 1 && one->Paths()[address].fabric == fabric, "over the fabric");
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
      return node->Paths()["ipv4:127.0.0.1:" + std::to_string(server.port())].fabric;
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

}  // namespace

bool RunSwitchCase(const std::string& fabric, const std::string& name) {
  if (fabric != "shm") return false;
  if (name == "switch") {
    OnAndOffBesideEachOther(fabric);
  } else if (name == "fabrics") {
    FabricsOfOneChannel(fabric);
  } else if (name == "tls") {
    FabricsUnderTls();
  } else if (!RunHandshakeCase(fabric, name)) {
    return false;
  }
  std::printf("ok %s over %s\n", name.c_str(), fabric.c_str());
  return true;
}

}  // namespace ar_grpc::testing
