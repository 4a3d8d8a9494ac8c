// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/conformance/shm_support.h"

#include <dirent.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/common/at_rest.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/shm/connector.h"
#include "third_party/ar_grpc/fabric/shm/listener.h"
#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"
#include "third_party/ar_grpc/fabric/shm/peer_socket.h"
#include "third_party/ar_grpc/fabric/shm/shared_doorbell.h"

namespace ar_grpc::fabric::testing {

using shm::Packet;

size_t OpenFds() {
  RunOnReactor([] {});  // what its callbacks hold is closed as they end
  // One may take as long as its peer likes.
  for (int i = 0; i < 1000 && shm::ClosesUnderWay() > 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  size_t count = 0;
  DIR* const directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

size_t OpenFdsAtRest() { return ar_grpc::testing::AtRest(OpenFds, std::chrono::milliseconds(50)); }

void CheckNoFdLeaks(size_t before, int line) {
  for (int i = 0; i < 100 && OpenFds() > before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  Check(OpenFds() == before,
        std::to_string(OpenFds()) + " descriptors, before " + std::to_string(before), line);
}

int WaitFor(pid_t child) {
  int status = -1;
  Check(waitpid(child, &status, 0) == child, "waitpid");
  return status;
}

std::shared_ptr<TokenListener> ListenHere(const std::string& directory) {
  return Value(shm::ListenForPeers(directory));
}

TokenFrame FrameFor(const std::string& address, const Token& token) {
  TokenFrame frame;
  frame.address = address;
  frame.token = token;
  return frame;
}

MaybeConnection ConnectNow(const TokenFrame& frame) {
  Awaited connected;
  shm::ConnectToPeer(frame, connected.done());
  return connected.Get();
}

Pair AttachTo(TokenListener& listener) {
  const Token token = NewToken();
  Awaited accepted;
  listener.Expect(token, accepted.done());
  Pair pair;
  pair.connector = Value(ConnectNow(FrameFor(listener.address(), token)));
  pair.acceptor = Value(accepted.Get());
  return pair;
}

UniqueFd ConnectTo(const std::string& address) {
  return Value(shm::ConnectSocket(Value(shm::ParseAddress(address))[0]));
}

Packet AwaitPacket(int socket) {
  Check(Readable(socket, kTimeoutMs), "no packet in time");
  std::optional<Packet> packet = Value(shm::ReceivePacket(socket));
  Check(packet.has_value(), "a packet");
  return std::move(*packet);
}

bool HungUp(int socket, int timeout_ms) {
  if (!Readable(socket, timeout_ms)) return false;
  char byte;
  return recv(socket, &byte, 1, MSG_DONTWAIT) == 0;
}

UniqueFd Unsealed(size_t size) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Check(ftruncate(fd.get(), static_cast<off_t>(size)) == 0, "ftruncate");
  return fd;
}

std::unique_ptr<Doorbell> BellOf(uint16_t version, const UniqueFd& own, const UniqueFd& peers) {
  return Value(
      shm::NewSharedDoorbell(version, UniqueFd(dup(own.get())), UniqueFd(dup(peers.get()))));
}

Forger::Forger(uint16_t version)
    : version(version),
      wake(Value(shm::NewBell(version))),
      peer_wake(Value(shm::NewBell(version))),
      bell(BellOf(version, wake, peer_wake)) {}

shm::AttachRequest Forger::request() const {
  shm::AttachRequest request;
  request.version = version;
  request.token = token;
  request.ring_bytes = ring_bytes;
  return request;
}

std::vector<int> Forger::fds() const { return {memory.fd.get(), wake.get(), peer_wake.get()}; }

std::unique_ptr<Connection> Forger::End() {
  RingConnection::Parts parts;
  parts.memory = memory.data;
  parts.ring_bytes = ring_bytes;
  parts.end = RingEnd::kConnector;
  parts.doorbell = std::move(bell);
  return std::make_unique<RingConnection>(std::move(parts));
}

Outcome Forge(const Token& token, const std::string& bytes, const std::vector<int>& fds) {
  const std::shared_ptr<TokenListener> listener = ListenHere();
  Awaited accepted;
  listener->Expect(token, accepted.done());
  UniqueFd socket = ConnectTo(listener->address());
  CheckOk(shm::SendPacket(socket.get(), bytes, fds));
  Packet packet = AwaitPacket(socket.get());
  StatusOr<shm::AttachAnswer> answer = shm::DecodeAnswer(packet.bytes);
  const bool stays = answer.ok() && answer->status.ok() && answer->version == shm::kVersion;
  if (!stays) Check(HungUp(socket.get(), kTimeoutMs), "the acceptor closes after its answer");
  const Status none(StatusCode::kNotFound, "not called");
  RunOnReactor([] {});
  return {accepted.Ready(0) ? accepted.Get() : MaybeConnection(none), std::move(answer),
          std::move(packet.fds), std::move(socket)};
}

Outcome Forge(Forger& forger, const shm::AttachRequest& request, const std::vector<int>& fds) {
  return Forge(forger.token, Encode(request), fds);
}

Outcome Forge(Forger& forger) { return Forge(forger, forger.request(), forger.fds()); }

void CheckRefused(const Outcome& outcome, StatusCode code, const std::string& text, int line) {
  CheckOk(outcome.answer.status(), line);
  CheckCode(outcome.answer->status, code, text, line);
  CheckCode(outcome.accepted.status(), code, text, line);
}

MaybeConnection ConnectToForged(const std::vector<Said>& packets, uint16_t version,
                                std::vector<UniqueFd>* passed) {
  auto listening = Value(shm::MeetingSockets::Listen(""));
  Awaited connected;
  TokenFrame frame = FrameFor(listening->address(), NewToken());
  frame.version = version;
  shm::ConnectToPeer(frame, connected.done());
  const int listener = listening->sockets()[0].get();
  Check(Readable(listener, kTimeoutMs), "it connects");
  const UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  Packet packet = AwaitPacket(socket.get());
  const shm::AttachRequest request = Value(shm::DecodeRequest(packet.bytes));
  Check(request.version == version && request.region_bytes == 0, "in the version of the frame");
  Check(packet.fds.size() == 3, "descriptors");
  if (passed != nullptr) *passed = std::move(packet.fds);
  for (const Said& said : packets) {
    // The connector may have hung up on the one before.
    static_cast<void>(shm::SendPacket(socket.get(), said.bytes, said.fds));
  }
  return connected.Get();
}

}  // namespace ar_grpc::fabric::testing
