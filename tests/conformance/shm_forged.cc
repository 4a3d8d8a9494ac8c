// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Peers that attach with lies.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "tests/conformance/shm_support.h"
#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"

namespace ar_grpc::fabric::testing {
namespace {

using shm::AttachAnswer;
using shm::AttachRequest;
using shm::Packet;

void AnHonestForgerIsAccepted() {
  Forger forger;
  Outcome outcome = Forge(forger);
  CheckOk(outcome.answer.status());
  Check(outcome.accepted.ok() && outcome.answer->status.ok() && outcome.fds.empty(), "accepted");
}

// The connector may tell the acceptor, on another way, that it is connected: it must know by then.
void TheAcceptorIsToldFirst() {
  const std::shared_ptr<TokenListener> listener = ListenHere();
  Forger forger;
  const UniqueFd socket = ConnectTo(listener->address());
  std::atomic<bool> told{false};
  listener->Expect(forger.token, [&](MaybeConnection) {
    Check(!Readable(socket.get(), 100), "the answer came before the acceptor's callback had run");
    told = true;
  });
  CheckOk(shm::SendPacket(socket.get(), Encode(forger.request()), forger.fds()));
  AwaitPacket(socket.get());
  Check(told, "the acceptor was not told");
}

void LyingCountersAreCaught() {
  const std::vector<std::pair<const char*, std::function<Status(Forger&, Connection&)>>> lies = {
      {"the peer's write counter",
       [](Forger& forger, Connection& connection) {
         forger.header().bytes[0].written = kRingBytes + 1;
         return ReadText(connection, 100).status();
       }},
      {"the peer's write counter",
       [](Forger& forger, Connection& connection) {
         forger.header().bytes[0].written = UINT64_MAX;
         return connection.Readable().status();
       }},
      {"the peer's write counter",
       [](Forger& forger, Connection& connection) {
         forger.header().bytes[0].written = 100;
         Check(Value(ReadText(connection, 60)).size() == 60, "read");
         forger.header().bytes[0].written = 50;
         return ReadText(connection, 60).status();
       }},
      {"the peer's read counter",
       [](Forger& forger, Connection& connection) {
         forger.header().bytes[1].consumed = uint64_t{1} << 40;
         while (true) {
           const StatusOr<size_t> wrote = WriteText(connection, std::string(99999, 'x'));
           if (!wrote.ok()) return wrote.status();
         }
       }},
      {"the peer's read counter",
       [](Forger& forger, Connection& connection) {
         while (Value(WriteText(connection, std::string(99999, 'x'))) > 0) {
         }
         forger.header().bytes[1].consumed = kRingBytes + 1;
         return connection.ArmWrite().status();
       }},
      {"a part of a message",
       [](Forger& forger, Connection& connection) {
         forger.header().messages[0].written = Message::kSize - 1;
         Message message;
         return connection.Take(&message).status();
       }},
      {"the peer's write counter",
       [](Forger& forger, Connection& connection) {
         forger.header().messages[0].written = kMessageBytes + Message::kSize;
         return connection.ArmRead().status();
       }},
      {"the peer's read counter",
       [](Forger& forger, Connection& connection) {
         forger.header().messages[1].consumed = kMessageBytes + 1;
         while (true) {
           const StatusOr<bool> posted = connection.Post(Message{});
           if (!posted.ok()) return posted.status();
         }
       }},
  };
  for (const auto& [text, lie] : lies) {
    Forger forger;
    Outcome outcome = Forge(forger);
    const std::unique_ptr<Connection> connection = Value(std::move(outcome.accepted));
    CheckCode(lie(forger, *connection), StatusCode::kInternal, text);
    uint8_t byte;
    Message message;
    Check(connection->closed() && forger.header().closed[1] == 1, "closed");
    Check(Readable(forger.bell->fd(), 0), "the liar is told");
    for (const Status& status :
         {WriteText(*connection, "x").status(), ReadText(*connection, 1).status(),
          connection->Readable().status(), connection->Post(message).status(),
          connection->Take(&message).status(), connection->ArmRead().status(),
          connection->ArmWrite().status(), GetNow(*connection, "", 0, &byte, 1),
          connection->Export(nullptr).status()}) {
      CheckCode(status, StatusCode::kInternal, text);
    }
  }
}

void WrongMemoryIsRefused() {
  const size_t before = OpenFdsAtRest();
  {
    Forger forger;
    const UniqueFd unsealed = Unsealed(ConnectionBytes(kRingBytes));
    CheckRefused(
        Forge(forger, forger.request(), {unsealed.get(), forger.fds()[1], forger.fds()[2]}),
        StatusCode::kInternal, "not sealed");
  }
  {
    Forger forger;
    forger.memory = Value(memory::CreateShared(4096));
    CheckRefused(Forge(forger), StatusCode::kInternal, "has 4096 bytes");
  }
  {
    Forger forger;
    UniqueFd pipes[2];
    int fds[2];
    Check(pipe2(fds, O_CLOEXEC) == 0, "pipe");
    pipes[0].reset(fds[0]);
    pipes[1].reset(fds[1]);
    CheckRefused(Forge(forger, forger.request(), {fds[0], forger.fds()[1], forger.fds()[2]}),
                 StatusCode::kInternal, "not sealed");
  }
  for (const uint64_t ring_bytes : {uint64_t{0}, uint64_t{1}, uint64_t{kRingBytes} - 1,
                                    uint64_t{kRingBytes} * 3, uint64_t{1} << 40, UINT64_MAX}) {
    Forger forger;
    forger.ring_bytes = ring_bytes;
    CheckRefused(Forge(forger), StatusCode::kInvalidArgument, "no ring has");
  }
  {
    Forger forger;
    forger.ring_bytes = 2 * kRingBytes;
    CheckRefused(Forge(forger), StatusCode::kInternal, "stated");
  }
  CheckNoFdLeaks(before);
}

void WrongDescriptorsAreRefused() {
  const size_t before = OpenFdsAtRest();
  for (const uint16_t version : {shm::kVersion, shm::kOldVersion}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{4}, size_t{200}}) {
      Forger forger(version);
      std::vector<int> fds = forger.fds();
      fds.resize(count, forger.wake.get());
      CheckRefused(Forge(forger, forger.request(), fds), StatusCode::kInvalidArgument,
                   std::to_string(count) + " descriptors");
    }
    for (const int place : {1, 2}) {
      Forger forger(version);
      int pipe[2];
      Check(pipe2(pipe, O_CLOEXEC) == 0, "pipe");
      const UniqueFd reads(pipe[0]);
      const UniqueFd writes(pipe[1]);
      const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
      for (const int wrong : {null.get(), reads.get(), writes.get(), forger.memory.fd.get()}) {
        std::vector<int> fds = forger.fds();
        fds[place] = wrong;
        CheckRefused(Forge(forger, forger.request(), fds), StatusCode::kInternal,
                     "something else than a");
      }
    }
  }
  CheckNoFdLeaks(before);
}

void GarbageIsRefused() {
  const size_t before = OpenFdsAtRest();
  const auto forge = [](std::string bytes, StatusCode code, const std::string& text) {
    Forger forger;
    const Outcome outcome = Forge(forger.token, bytes, forger.fds());
    CheckOk(outcome.answer.status());
    CheckCode(outcome.answer->status, code, text);
    CheckCode(outcome.accepted.status(), StatusCode::kNotFound);  // the token is not used up
  };
  const std::string good = shm::Encode(Forger().request());
  for (size_t size = 1; size < good.size(); ++size) {
    forge(good.substr(0, size), StatusCode::kInvalidArgument, "attach packet");
  }
  forge(good + "x", StatusCode::kInvalidArgument, "wrong length");
  forge(std::string(1000, '\xff'), StatusCode::kInvalidArgument, "not a shared-memory");
  forge(std::string(100000, '\xff'), StatusCode::kInvalidArgument, "wrong length");
  std::string later = good;
  ++later[4];
  forge(later, StatusCode::kUnimplemented, "version 3");
  forge(good, StatusCode::kPermissionDenied, "unknown token");
  for (size_t size = 0; size < 12; ++size) {
    Check(!shm::DecodeAnswer(shm::Encode(AttachAnswer()).substr(0, size)).ok(), "too short");
  }
  AttachAnswer unknown;
  unknown.status = Status(static_cast<StatusCode>(99), "why");
  CheckCode(shm::DecodeAnswer(shm::Encode(unknown))->status, StatusCode::kInternal, "why");
  CheckNoFdLeaks(before);
}

void AForgedAnswerIsRefused() {
  const size_t before = OpenFdsAtRest();
  const UniqueFd wake = Value(NewWakeFd());
  AttachAnswer answer;
  const auto connect = [](const std::string& bytes, const std::vector<int>& fds) {
    return ConnectToForged({{bytes, fds}}).status();
  };
  CheckOk(connect(Encode(answer), {}));
  CheckCode(connect(Encode(answer), {wake.get()}), StatusCode::kInvalidArgument);
  CheckCode(connect("garbage", {}), StatusCode::kInvalidArgument);
  CheckCode(connect(Encode(Forger().request()), {}), StatusCode::kInvalidArgument);
  answer.version = shm::kOldVersion;
  CheckCode(connect(Encode(answer), {}), StatusCode::kInvalidArgument, "another version");
  answer.status = Status(StatusCode::kResourceExhausted, std::string(10000, 'w'));
  CheckCode(connect(Encode(answer), {}), StatusCode::kResourceExhausted, "www");
  answer.version = shm::kVersion;
  CheckCode(connect(Encode(answer), {}), StatusCode::kResourceExhausted, "www");
  CheckNoFdLeaks(before + 1);  // `wake`
}

void AnotherUserIsRefused() {
  CheckOk(shm::CheckPeerUid(1000, 1000));
  CheckCode(shm::CheckPeerUid(1000, 1001), StatusCode::kPermissionDenied, "user 1000");
  CheckCode(shm::CheckPeerUid(0, 1001), StatusCode::kPermissionDenied);
}

void OddAddressesAreRefused() {
  const std::string hex(32, 'a');
  const std::string name = "@ar-grpc." + hex;
  const std::string path = "/some/where/ar-grpc." + hex + ".12.sock";
  Check(Value(shm::ParseAddress(name + "," + path)).size() == 2, "both");
  for (const std::string& wrong :
       {std::string(), std::string("@"), std::string(","), name + ",", "," + name, name + "a",
        std::string("/run/other.sock"), std::string("/ar-grpc.1.2.sock"), "@" + path,
        "/x/ar-grpc." + hex + ".sock", "/x/ar-grpc." + hex + "..sock",
        "/ar-grpc." + hex + ".12.sock/y", "ar-grpc." + hex + ".12.sock"}) {
    CheckCode(shm::ParseAddress(wrong).status(), StatusCode::kInvalidArgument);
  }
  // Of a path only the file's name counts.
  CheckCode(ConnectNow(FrameFor(path, NewToken())).status(), StatusCode::kUnavailable,
            "set AR_GRPC_SHM_DIR");
  using Addresses = std::vector<std::string>;
  const std::string file = "/ar-grpc." + hex + ".12.sock";
  Check(shm::AddressesHere({name, path}, "") == Addresses{name}, "no directory");
  Check(shm::AddressesHere({name, path}, "relative") == Addresses{name}, "none that is absolute");
  Check(shm::AddressesHere({path, name}, "/own") == Addresses{"/own" + file, name}, "in its own");
  setenv("AR_GRPC_SHM_DIR", ("/" + std::string(200, 'x')).c_str(), 1);
  const Status unreachable = ConnectNow(FrameFor(path, NewToken())).status();
  unsetenv("AR_GRPC_SHM_DIR");
  CheckCode(unreachable, StatusCode::kInvalidArgument, "long");
  for (const std::string& wrong : {std::string(), std::string("nonsense")}) {
    CheckCode(ConnectNow(FrameFor(wrong, NewToken())).status(), StatusCode::kInvalidArgument);
  }
  TokenFrame later = FrameFor(name, NewToken());
  later.version = 3;
  CheckCode(ConnectNow(later).status(), StatusCode::kUnimplemented, "version 3");
  CheckCode(ConnectNow(FrameFor(name, NewToken())).status(), StatusCode::kUnavailable);
}

void SilentImpostorsAreClosed() {
  const std::shared_ptr<TokenListener> listener = ListenHere();
  std::vector<UniqueFd> impostors;
  for (int i = 0; i < 99; ++i) impostors.push_back(ConnectTo(listener->address()));
  const auto newest = std::chrono::steady_clock::now();
  impostors.push_back(ConnectTo(listener->address()));
  AttachTo(*listener);
  Check(HungUp(impostors[0].get(), 1500), "over the cap the oldest is closed");
  const bool closed = Readable(impostors[99].get(), 0);
  const bool early = std::chrono::steady_clock::now() - newest < std::chrono::seconds(2);
  Check(!closed || !early, "the newest may speak yet");
  Check(HungUp(impostors[99].get(), 5000), "and is closed in the end");
}

}  // namespace

std::vector<Case> ShmForgedCases() {
  return {
      {"an honest forger is accepted", AnHonestForgerIsAccepted},
      {"the acceptor is told first", TheAcceptorIsToldFirst},
      {"lying counters are caught", LyingCountersAreCaught},
      {"wrong memory is refused", WrongMemoryIsRefused},
      {"wrong descriptors are refused", WrongDescriptorsAreRefused},
      {"garbage is refused", GarbageIsRefused},
      {"a forged answer is refused", AForgedAnswerIsRefused},
      {"another user is refused", AnotherUserIsRefused},
      {"odd addresses are refused", OddAddressesAreRefused},
      {"silent impostors are closed", SilentImpostorsAreClosed},
  };
}

}  // namespace ar_grpc::fabric::testing
