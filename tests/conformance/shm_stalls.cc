// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Descriptors that a peer has, too, or has passed, and what it may do to them to make this end
// wait.

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "tests/conformance/shm_support.h"
#include "third_party/ar_grpc/base/reactor.h"

namespace ar_grpc::fabric::testing {
namespace {

// What fills or changes the descriptors that both have must not make this end block.
void APeerCannotBlockAWakeUp() {
  Forger forger;
  Outcome outcome = Forge(forger);
  const std::unique_ptr<Connection> connection = Value(std::move(outcome.accepted));
  const std::string page(4096, 'x');
  for (const int fd : {forger.wake.get(), forger.peer_wake.get()}) {
    while (write(fd, page.data(), page.size()) > 0) {
    }
    while (write(fd, "x", 1) > 0) {
    }
  }
  for (const int fd : forger.fds()) {
    Check(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0, "fcntl");
  }
  Ended ended;
  std::thread([&connection, &forger, done = ended.done()] {
    for (int i = 0; i < 100; ++i) {
      forger.header().bytes[1].reader_armed = 1;
      Check(Value(WriteText(*connection, "x")) == 1, "written");
      forger.header().bytes[1].reader_armed = 1;
      Check(Value(connection->Post(Message())), "posted");
    }
    Check(Readable(connection->wake_fd(), 0), "its own is full, too");
    for (int i = 0; i < 100 && Readable(connection->wake_fd(), 0); ++i) connection->ClearWake();
    Check(!Readable(connection->wake_fd(), 0), "and can be cleared");
    connection->ClearWake();
    connection->Close(nullptr);
    done(Status());
  }).detach();
  Check(ended.Ready(kTimeoutMs), "a peer made this end block");
  Check(Readable(forger.wake.get(), 0), "the peer is awake");
}

// A TCP connection whose other end reads nothing: close() of this one waits 30 s for it.
struct Lingering {
  UniqueFd end;
  UniqueFd other;
};
Lingering NewLingering() {
  const LoopbackListener listener = ListenOnLoopback(/*backlog=*/1);
  Lingering made;
  made.end.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Check(connect(made.end.get(), reinterpret_cast<const sockaddr*>(&listener.address),
                sizeof(listener.address)) == 0,
        "connected");
  made.other.reset(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::string page(65536, 'x');
  while (send(made.end.get(), page.data(), page.size(), MSG_DONTWAIT) > 0) {
  }
  const linger waits = {1, 30};
  Check(setsockopt(made.end.get(), SOL_SOCKET, SO_LINGER, &waits, sizeof(waits)) == 0, "linger");
  return made;
}

// While `sends` runs the reactor does nothing, and what it passes has no other owner after it.
void AmidTheReactorsSleep(const std::function<void()>& sends) {
  std::promise<void> sent;
  CheckOk(StartOnReactor([done = sent.get_future().share()] { done.wait(); }));
  sends();
  sent.set_value();
}

void CheckShort(const std::function<void()>& what, int line = __builtin_LINE()) {
  const auto start = std::chrono::steady_clock::now();
  what();
  Check(std::chrono::steady_clock::now() - start < std::chrono::seconds(15), "waited", line);
}

// How long a close takes is up to who passed the descriptor.
void APeerCannotStallByWhatItPasses() {
  const size_t before = OpenFds();
  {
    const std::shared_ptr<TokenListener> listener = ListenHere();
    std::vector<UniqueFd> others;
    const auto send = [&others](int socket, const std::string& bytes, std::vector<int> fds,
                                size_t place) {
      Lingering evil = NewLingering();
      fds[place] = evil.end.get();
      CheckOk(shm::SendPacket(socket, bytes, fds));
      others.push_back(std::move(evil.other));
    };
    const auto idle = [] { CheckShort([] { RunOnReactor([] {}); }); };
    for (const bool first : {true, false}) {
      for (const char* const bytes : {"garbage", ""}) {
        AmidTheReactorsSleep([&] {
          const UniqueFd socket = ConnectTo(listener->address());
          // Behind a packet that is received and refused, or in it.
          if (!first) CheckOk(shm::SendPacket(socket.get(), "x", {}));
          send(socket.get(), bytes, {0}, 0);
        });
        idle();
      }
    }
    for (const uint16_t version : {shm::kVersion, shm::kOldVersion}) {
      for (const size_t place : {0, 1, 2}) {
        Forger forger(version);
        Awaited accepted;
        listener->Expect(forger.token, accepted.done());
        AmidTheReactorsSleep([&] {
          const UniqueFd socket = ConnectTo(listener->address());
          send(socket.get(), Encode(forger.request()), forger.fds(), place);
        });
        CheckCode(accepted.Get().status(), StatusCode::kInternal);
        idle();
      }
    }
    Forger forger;
    Outcome outcome = Forge(forger);
    auto connection = Value(std::move(outcome.accepted));
    send(outcome.socket.get(), "announces nothing", {0}, 0);
    send(outcome.socket.get(), "behind it", {0}, 0);
    uint8_t byte;
    CheckShort([&] {
      Check(!GetNow(*connection, std::string(24, '\1'), 0, &byte, 1).ok(), "nothing to get");
    });
    CheckShort([&] { connection.reset(); });
    AttachTo(*listener);
    others.clear();  // which ends the waiting
  }
  CheckNoFdLeaks(before);
}

}  // namespace

std::vector<Case> ShmStallCases() {
  return {
      {"a peer cannot block a wake-up", APeerCannotBlockAWakeUp},
      {"a peer cannot stall by what it passes", APeerCannotStallByWhatItPasses},
  };
}

}  // namespace ar_grpc::fabric::testing
