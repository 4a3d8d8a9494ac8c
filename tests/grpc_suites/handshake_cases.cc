// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/handshake_cases.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>

#include "tests/grpc_suites/core_ends.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/registry.h"
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

using fabric::testing::CheckOk;

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
  // Before any other handshake of this process, which makes what all of them share; and once more,
  // after one over the fabric.
  for (int pass = 0; pass < 2; ++pass) {
    {
      const StandingReactor standing;
      const auto plain =
          took([&] { Channel(Settings(nullptr), server.port()).AwaitReady(&queue); });
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
        Check(node->Paths()[address].fabric == "tcp", "over TCP");
      });
      Check(late > milliseconds(1000) && late < milliseconds(6000), "within the deadline");
      const auto closed = took([&] { Server(Settings(serving), &queue); });
      Check(closed < milliseconds(2000), "a server begins and ends");
    }
    const auto after = took([&] {
      Channel channel(Settings(node), server.port());
      channel.AwaitReady(&queue);
      Check(node->Paths()[address].fabric == fabric, "over the fabric again");
    });
    Check(after < milliseconds(2000), "at once");
  }
}

}  // namespace

bool RunHandshakeCase(const std::string& fabric, const std::string& name) {
  if (name == "ends") {
    EndsInTheHandshake(fabric);
  } else if (name == "reactor") {
    TheReactorWritesNothingToTcp(fabric);
  } else if (name == "standing") {
    HandshakesBesideAStandingReactor(fabric);
  } else {
    return false;
  }
  return true;
}

}  // namespace ar_grpc::testing
