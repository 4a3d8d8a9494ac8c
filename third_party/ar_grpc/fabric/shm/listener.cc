// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/listener.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <cerrno>
#include <list>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/expected.h"
#include "third_party/ar_grpc/fabric/ring_connection.h"
#include "third_party/ar_grpc/fabric/shm/attach.h"
#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"
#include "third_party/ar_grpc/fabric/shm/memory.h"

namespace ar_grpc::fabric::shm {
namespace {

// Whoever connects says who he is at once, so silence is an impostor's or a dying process's.
constexpr int kSilenceMs = 2000;
constexpr size_t kMostSilent = 64;
// Without descriptors nothing can be accepted; asked again after this.
constexpr int kPauseMs = 100;
constexpr int kAcceptsAtOnce = 64;

// The connection's end that a request asks for.
StatusOr<RingConnection::Parts> PartsFor(const Request& request, std::vector<UniqueFd> fds) {
  const size_t expected = request.region_bytes > 0 ? 4 : 3;
  if (fds.size() != expected) return WrongCount(fds.size());
  const uint64_t ring_bytes = request.ring_bytes;
  if (ring_bytes < kSmallestRingBytes || ring_bytes > kLargestRingBytes ||
      (ring_bytes & (ring_bytes - 1)) != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "no ring has " + std::to_string(ring_bytes) + " bytes");
  }
  const size_t size = ConnectionBytes(ring_bytes);
  if (Status status = CheckShared(fds[0].get(), size); !status.ok()) return status;
  for (const UniqueFd* const wake : {&fds[1], &fds[2]}) {
    if (Status status = CheckEventFd(wake->get()); !status.ok()) return status;
  }
  RingConnection::Parts parts;
  auto memory = Map(fds[0].get(), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE);
  if (!memory.ok()) return memory.status();
  if (request.region_bytes > 0) {
    StatusOr<RemoteRegion> remote =
        RegionTable::Get().MapRemote(fds[3].get(), request.region_bytes);
    if (!remote.ok()) return remote.status();
    parts.remote = std::move(*remote);
  }
  parts.memory = std::move(*memory);
  parts.ring_bytes = ring_bytes;
  parts.role = Role::kAcceptor;
  parts.wake = std::move(fds[2]);
  parts.peer_wake = std::move(fds[1]);
  return parts;
}

Status Refuse(int socket, Status status) {
  Answer answer;
  answer.status = status;
  // The peer may be gone; then nobody waits for it.
  static_cast<void>(SendPacket(socket, Encode(answer), {}));
  return status;
}

// Everything but `expected` is used on the reactor's thread only. The reactor's callbacks keep it.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  explicit Acceptor(std::unique_ptr<MeetingSockets> listening) : listening_(std::move(listening)) {}

  Status Start() {
    Status status = WatchAll();
    if (!status.ok()) Stop();
    return status;
  }

  void Stop() {
    stopped_ = true;
    Reactor::Get().Cancel(resume_);
    for (const UniqueFd& socket : listening_->sockets()) Reactor::Get().Remove(socket.get());
    while (!silent_.empty()) Drop(silent_.begin());
    listening_.reset();
  }

  ExpectedTokens& expected() { return expected_; }

 private:
  // One that has connected and not said anything yet.
  struct Silent {
    UniqueFd socket;
    uint64_t deadline = 0;
  };
  using Place = std::list<Silent>::iterator;

  Status WatchAll() {
    for (const UniqueFd& socket : listening_->sockets()) {
      const auto accept = [self = shared_from_this(), fd = socket.get()] {
        for (int i = 0; i < kAcceptsAtOnce && !self->stopped_ && self->AcceptOne(fd); ++i) {
        }
      };
      if (Status status = Reactor::Get().Add(socket.get(), accept); !status.ok()) return status;
    }
    return Status();
  }

  // false: there is none to accept now.
  bool AcceptOne(int listening) {
    UniqueFd socket(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.valid()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      if (errno == EINTR || errno == ECONNABORTED) return true;
      Pause();
      return false;
    }
    if (Status status = CheckPeer(socket.get()); !status.ok()) {
      static_cast<void>(Refuse(socket.get(), std::move(status)));
      return true;
    }
    if (silent_.size() == kMostSilent) Drop(silent_.begin());
    silent_.push_back({std::move(socket)});
    const Place place = std::prev(silent_.end());
    const int fd = place->socket.get();
    if (Serve(place)) return true;
    const auto self = shared_from_this();
    place->deadline = Reactor::Get().RunAfter(kSilenceMs, [self, place] {
      place->deadline = 0;
      self->Drop(place);
    });
    if (!Reactor::Get().Add(fd, [self, place] { self->Serve(place); }).ok()) Drop(place);
    return true;
  }

  // The kernel goes on saying that there are connections to accept.
  void Pause() {
    for (const UniqueFd& socket : listening_->sockets()) Reactor::Get().Remove(socket.get());
    resume_ = Reactor::Get().RunAfter(kPauseMs, [self = shared_from_this()] {
      if (!self->WatchAll().ok()) self->Pause();
    });
  }

  void Drop(Place place) {
    Reactor::Get().Cancel(place->deadline);
    Reactor::Get().Remove(place->socket.get());
    silent_.erase(place);
  }

  // false: it has said nothing yet.
  bool Serve(Place place) {
    StatusOr<std::optional<Packet>> packet = ReceivePacket(place->socket.get());
    if (packet.ok() && !packet->has_value()) return false;
    const UniqueFd socket = std::move(place->socket);
    Reactor::Get().Remove(socket.get());
    Drop(place);
    if (packet.ok()) {
      Attach(socket.get(), std::move(**packet));
    } else {
      static_cast<void>(Refuse(socket.get(), packet.status()));
    }
    return true;
  }

  void Attach(int socket, Packet packet) {
    const StatusOr<Request> request = DecodeRequest(packet.bytes);
    if (!request.ok()) {
      static_cast<void>(Refuse(socket, request.status()));
      return;
    }
    const ConnectDone done = expected_.Take(request->token);
    if (!done) {
      static_cast<void>(Refuse(socket, Status(StatusCode::kPermissionDenied, "unknown token")));
      return;
    }
    StatusOr<RingConnection::Parts> parts = PartsFor(*request, std::move(packet.fds));
    if (!parts.ok()) return done(Refuse(socket, parts.status()));
    const std::shared_ptr<MemfdRegion> offered = RegionTable::Get().Offered();
    Answer answer;
    std::vector<int> fds;
    if (offered) {
      answer.region_bytes = offered->size();
      fds.push_back(offered->read_only_fd());
    }
    // First the owner, then the peer, which may tell the owner at once that it is connected. A peer
    // that is gone by now leaves a connection that nobody uses.
    done(std::unique_ptr<Connection>(std::make_unique<RingConnection>(std::move(*parts))));
    static_cast<void>(SendPacket(socket, Encode(answer), fds));
  }

  ExpectedTokens expected_;
  std::unique_ptr<MeetingSockets> listening_;
  std::list<Silent> silent_;  // the oldest first
  uint64_t resume_ = 0;
  bool stopped_ = false;
};

class ShmListener final : public Listener {
 public:
  ShmListener(std::string address, std::shared_ptr<Acceptor> acceptor)
      : address_(std::move(address)), acceptor_(std::move(acceptor)), fork_count_(ForkCount()) {}
  ~ShmListener() override {
    // In a forked child nothing of it runs.
    if (ForkCount() == fork_count_) RunOnReactor([this] { acceptor_->Stop(); });
  }
  std::string address() const override { return address_; }
  void Expect(const Token& token, ConnectDone done) override {
    acceptor_->expected().Expect(token, std::move(done));
  }
  void Forget(const Token& token) override { acceptor_->expected().Forget(token); }

 private:
  const std::string address_;
  const std::shared_ptr<Acceptor> acceptor_;
  const uint32_t fork_count_;
};

}  // namespace

StatusOr<std::unique_ptr<Listener>> ListenForPeers(const std::string& directory) {
  StatusOr<std::unique_ptr<MeetingSockets>> listening = MeetingSockets::Listen(directory);
  if (!listening.ok()) return listening.status();
  std::string address = (*listening)->address();
  const auto acceptor = std::make_shared<Acceptor>(std::move(*listening));
  Status status;
  RunOnReactor([&] { status = acceptor->Start(); });
  if (!status.ok()) return status;
  return std::unique_ptr<Listener>(std::make_unique<ShmListener>(std::move(address), acceptor));
}

}  // namespace ar_grpc::fabric::shm
