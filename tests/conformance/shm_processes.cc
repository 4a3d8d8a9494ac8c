// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Peers in other processes: what holds between two of them, and what a death leaves.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/conformance/shm_child.h"
#include "tests/conformance/shm_support.h"
#include "third_party/ar_grpc/fabric/shm/connector.h"
#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"
#include "third_party/ar_grpc/fabric/shm/shm.h"

namespace ar_grpc::fabric::testing {
namespace {

constexpr size_t kSegmentSize = size_t{1} << 20;

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::string ToHex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    for (const int digit : {byte >> 4 & 15, byte & 15}) text += "0123456789abcdef"[digit];
  }
  return text;
}

std::string FromHex(const std::string& text) {
  std::string bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

void Echo(Connection& connection) {
  std::vector<uint8_t> buffer(70000);
  while (true) {
    const StatusOr<size_t> got = connection.Read(buffer.data(), buffer.size());
    if (!got.ok()) return;
    WriteAll(connection, buffer.data(), *got);
    if (*got == 0) {
      const StatusOr<bool> armed = connection.ArmRead();
      if (armed.ok() && *armed) AwaitWake(connection);
    }
  }
}

// Says its frame and then its key; echoes until its peer closes.
void RunEcho() {
  const auto segment = Value(memory::Segment::Create(kSegmentSize));
  std::memset(segment->data(), 0x5A, kSegmentSize);
  const auto registration = Value(shm::Get().Register(segment, 0, kSegmentSize, Access::kRead));
  Awaited accepted;
  AttachEvents events;
  events.send = [](std::string frame) { Say(ToHex(frame)); };
  events.done = accepted.done();
  const auto attachment = Value(shm::Get().Accept(std::move(events)));
  Check(accepted.Ready(3 * kTimeoutMs), "nobody came");
  const std::unique_ptr<Connection> connection = Value(accepted.Get());
  const StatusOr<Key> key = connection->Export(registration);
  // The peer may have closed already.
  if (key.ok()) Say(ToHex(*key));
  Echo(*connection);
}

void AnotherProcessEchoes() {
  Child child({"echo"});
  std::unique_ptr<Connection> connection =
      Value(ConnectNow(Value(DecodeTokenFrame(FromHex(child.Line())))));
  const Key key = FromHex(child.Line());
  std::string sent;
  for (int i = 0; i < 3000000 / kSlowdown; ++i) sent += static_cast<char>(i * 7 + i / 251);
  std::string received;
  size_t written = 0;
  while (received.size() < sent.size()) {
    const iovec part = {sent.data() + written, sent.size() - written};
    const size_t wrote = Value(connection->Write(&part, 1));
    const std::string got = Value(ReadText(*connection, 50000));
    written += wrote;
    received += got;
    if (wrote > 0 || !got.empty()) continue;
    if (written < sent.size() && !Value(connection->ArmWrite())) continue;
    if (Value(connection->ArmRead())) AwaitWake(*connection);
  }
  Check(received == sent, "what was sent comes back");
  std::vector<uint8_t> region(kSegmentSize);
  CheckOk(GetNow(*connection, key, 0, region.data(), kSegmentSize));
  Check(std::count(region.begin(), region.end(), 0x5A) == kSegmentSize, "its segment's bytes");
  connection.reset();
  child.AwaitEnd();
}

void KilledConnectorsAreForgotten() {
  const size_t before = OpenFdsAtRest();
  {
    const std::shared_ptr<TokenListener> listener = ListenHere();
    const auto run = [&](const std::string& role) {
      Child child({role, listener->address()});
      child.Line();
      child.End(SIGKILL);
    };
    const size_t listening = OpenFds();
    run("connects");
    CheckNoFdLeaks(listening);
    for (const std::string role : {"asks", "attaches"}) {
      Awaited accepted;
      listener->Expect(kKnownToken, accepted.done());
      run(role);
      MaybeConnection result = accepted.Get();
      // One that was killed as the answer was sent may be an error, too.
      if (result.ok()) {
        std::unique_ptr<Connection> connection = std::move(*result);
        while (true) {
          const StatusOr<std::string> text = ReadText(*connection, 100000);
          if (!text.ok() || text->empty()) break;
        }
        static_cast<void>(WriteText(*connection, "to nobody").ok());
        const auto segment = Value(memory::Segment::Create(4096));
        const auto registration = Value(shm::Get().Register(segment, 0, 4096, Access::kRead));
        CheckCode(connection->Export(registration).status(), StatusCode::kUnavailable);
        uint8_t byte;
        Check(!GetNow(*connection, std::string(24, '\1'), 0, &byte, 1).ok(), "nothing to get");
      }
    }
    CheckNoFdLeaks(listening);
    AttachTo(*listener);
  }
  CheckNoFdLeaks(before);
}

void KilledAcceptorsAreNoticed() {
  const size_t before = OpenFdsAtRest();
  {
    Child child({"listen"});
    const TokenFrame frame = FrameFor(child.Line(), NewToken());
    child.Stop();
    Awaited connected;
    shm::ConnectToPeer(frame, connected.done());
    Check(!connected.Ready(100), "no answer yet");
    child.End(SIGKILL);
    CheckCode(connected.Get().status(), StatusCode::kUnavailable);
    CheckCode(ConnectNow(frame).status(), StatusCode::kUnavailable);
  }
  {
    Child child({"echo"});
    const auto connection = Value(ConnectNow(Value(DecodeTokenFrame(FromHex(child.Line())))));
    const Key key = FromHex(child.Line());
    child.End(SIGKILL);
    while (Value(WriteText(*connection, std::string(10000, 'x'))) > 0) {
    }
    std::vector<uint8_t> region(kSegmentSize);
    CheckOk(GetNow(*connection, key, 0, region.data(), kSegmentSize));
    Check(region[kSegmentSize - 1] == 0x5A, "what was announced stays, no SIGBUS");
  }
  CheckNoFdLeaks(before);
}

// There is no deadline here: an attempt lasts until it is given up, and leaves nothing then.
void AStoppedAcceptorIsGivenUp() {
  const size_t before = OpenFdsAtRest();
  {
    Child child({"listen"});
    const TokenFrame frame = FrameFor(child.Line(), NewToken());
    child.Stop();
    const size_t stopped = OpenFds();
    const auto give_up = [&] {
      std::atomic<bool> called{false};
      AttachEvents events;
      events.done = [&called](MaybeConnection) { called = true; };
      auto attachment = Value(shm::Get().Connect(std::move(events)));
      attachment->TakeFrame(EncodeTokenFrame(frame));
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto start = std::chrono::steady_clock::now();
      attachment.reset();
      const auto took = std::chrono::steady_clock::now() - start;
      // For the other, which stands still, it would wait for ever.
      Check(took < std::chrono::seconds(15), "destroying it does not wait");
      CheckNoFdLeaks(stopped);
      Check(!called, "no event after that");
    };
    give_up();
    // Also when its queue of connections is full.
    std::vector<UniqueFd> queued;
    const std::string single = Value(shm::ParseAddress(frame.address))[0];
    while (queued.size() < 5000) {
      StatusOr<UniqueFd> socket = shm::ConnectSocket(single);
      if (!socket.ok()) {
        CheckCode(socket.status(), StatusCode::kAborted, "busy");
        break;
      }
      queued.push_back(std::move(*socket));
    }
    const size_t full = OpenFds();
    Check(full == stopped + queued.size(), "the queue's");
    Awaited connected;
    const auto stop = shm::ConnectToPeer(frame, connected.done());
    Check(!connected.Ready(200), "it tries on");
    stop();
    CheckNoFdLeaks(full);
  }
  CheckNoFdLeaks(before);
}

}  // namespace

int RunRole(const std::string& role, const std::string& argument) {
  if (role == "listen") {
    const std::shared_ptr<TokenListener> listener = ListenHere(argument);
    Say(listener->address());
    pause();
  } else if (role == "echo") {
    RunEcho();
  } else if (role == "before-5.8") {
    RunBefore58(/*with_aio=*/true);
  } else if (role == "before-5.8-without-aio") {
    RunBefore58(/*with_aio=*/false);
  } else if (role == "connects") {
    const UniqueFd socket = ConnectTo(argument);
    Say("connected");
    pause();
  } else if (role == "asks") {
    const UniqueFd socket = ConnectTo(argument);
    Forger forger;
    forger.token = kKnownToken;
    CheckOk(shm::SendPacket(socket.get(), shm::Encode(forger.request()), forger.fds()));
    Say("asked");
    pause();
  } else if (role == "attaches") {
    const auto connection = Value(ConnectNow(FrameFor(argument, kKnownToken)));
    Say("attached");
    while (WriteText(*connection, "never to be read in full").ok()) {
    }
  }
  return 0;
}

std::vector<Case> ShmProcessCases() {
  return {
      {"another process echoes", AnotherProcessEchoes},
      {"killed connectors are forgotten", KilledConnectorsAreForgotten},
      {"killed acceptors are noticed", KilledAcceptorsAreNoticed},
      {"a stopped acceptor is given up", AStoppedAcceptorIsGivenUp},
  };
}

}  // namespace ar_grpc::fabric::testing
