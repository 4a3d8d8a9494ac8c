// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/listener.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <list>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/expected.h"
#include "third_party/ar_grpc/fabric/ring_connection.h"
#include "third_party/ar_grpc/fabric/shm/attach.h"
#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"
#include "third_party/ar_grpc/fabric/shm/peer_segments.h"
#include "third_party/ar_grpc/fabric/shm/shared_doorbell.h"
#include "third_party/ar_grpc/memory/shared_memory.h"

namespace ar_grpc::fabric::shm {
namespace {

// Whoever connects says who he is at once, so silence is an impostor's or a dying process's.
constexpr int kSilenceMs = 2000;
constexpr size_t kMostSilent = 64;
// Without descriptors nothing can be accepted; asked again after this.
constexpr int kPauseMs = 100;
constexpr int kAcceptsAtOnce = 64;

// The connection's end that a request asks for, but for the peer's memory.
StatusOr<RingConnection::Parts> PartsFor(const AttachRequest& request, std::vector<UniqueFd> fds) {
  const size_t expected = request.region_bytes > 0 ? 4 : 3;
  if (fds.size() != expected) return WrongCount(fds.size());
  const uint64_t ring_bytes = request.ring_bytes;
  if (ring_bytes < kSmallestRingBytes || ring_bytes > kLargestRingBytes ||
      (ring_bytes & (ring_bytes - 1)) != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "no ring has " + std::to_string(ring_bytes) + " bytes");
  }
  const size_t size = ConnectionBytes(ring_bytes);
  if (Status status = memory::CheckShared(fds[0].get(), size); !status.ok()) return status;
  StatusOr<std::unique_ptr<Doorbell>> doorbell =
      NewSharedDoorbell(request.version, std::move(fds[2]), std::move(fds[1]));
  if (!doorbell.ok()) return doorbell.status();
  auto memory = Map(fds[0].get(), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE);
  if (!memory.ok()) return memory.status();
  RingConnection::Parts parts;
  parts.memory = std::move(*memory);
  parts.ring_bytes = ring_bytes;
  parts.end = RingEnd::kAcceptor;
  parts.doorbell = std::move(*doorbell);
  return parts;
}

// In version 1, which every connector understands, unless the peer's own is known.
Status Refuse(int socket, Status status, uint16_t version = kOldVersion) {
  AttachAnswer answer;
  answer.version = version;
  answer.status = status;
  // The peer may be gone; then nobody waits for it.
  static_cast<void>(SendPacket(socket, Encode(answer), {}));
  return status;
}

// Everything but Start and `expected` is used on the reactor's thread only. The reactor's callbacks
// keep it.
class Acceptor : public std::enable_shared_from_this<Acceptor> {
 public:
  explicit Acceptor(std::unique_ptr<MeetingSockets> listening) : listening_(std::move(listening)) {}

  // Does not wait for the reactor's thread: whoever calls may be in a handshake, and others'
  // handshakes wait for his thread.
  Status Start() {
    Status status = WatchAll();
    if (status.ok()) return status;
    // Without that thread nothing runs beside this.
    if (!StartOnReactor([self = shared_from_this()] { self->Stop(); }).ok()) Stop();
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
    PeerSocket socket;
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
    if (ClosesUnderWay() > kMostClosesUnderWay) {
      Pause();
      return false;
    }
    UniqueFd accepted(accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted.valid()) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
      if (errno == EINTR || errno == ECONNABORTED) return true;
      Pause();
      return false;
    }
    PeerSocket socket(std::move(accepted));
    if (Status status = CheckPeer(socket.get()); !status.ok()) {
      static_cast<void>(Refuse(socket.get(), std::move(status)));
      return true;
    }
    if (silent_.size() == kMostSilent) Drop(silent_.begin());
    silent_.push_back(Silent{std::move(socket)});
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

  // Until there may be descriptors again. The kernel goes on saying that there are connections to
  // accept.
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
    PeerSocket socket = std::move(place->socket);
    Reactor::Get().Remove(socket.get());
    Drop(place);
    if (packet.ok()) {
      Attach(std::move(socket), std::move(**packet));
    } else {
      static_cast<void>(Refuse(socket.get(), packet.status()));
    }
    return true;
  }

  void Attach(PeerSocket socket, Packet packet) {
    const StatusOr<AttachRequest> request = DecodeRequest(packet.bytes);
    if (!request.ok()) {
      static_cast<void>(Refuse(socket.get(), request.status()));
      return;
    }
    const uint16_t version = request->version;
    const ConnectDone done = expected_.Take(request->token);
    if (!done) {
      const Status unknown(StatusCode::kPermissionDenied, "unknown token");
      static_cast<void>(Refuse(socket.get(), unknown, version));
      return;
    }
    StatusOr<RingConnection::Parts> parts = PartsFor(*request, std::move(packet.fds));
    if (!parts.ok()) return done(Refuse(socket.get(), parts.status(), version));
    const auto peer = std::make_shared<PeerSegments>(std::move(socket));
    if (version != kOldVersion) parts->remote = peer;
    AttachAnswer answer;
    answer.version = version;
    // First the owner, then the peer, which may tell the owner at once that it is connected. A peer
    // that is gone by now leaves a connection that nobody uses.
    done(std::unique_ptr<Connection>(std::make_unique<RingConnection>(std::move(*parts))));
    static_cast<void>(SendPacket(peer->socket(), Encode(answer), {}));
  }

  ExpectedTokens expected_;
  std::unique_ptr<MeetingSockets> listening_;
  std::list<Silent> silent_;  // the oldest first
  uint64_t resume_ = 0;
  bool stopped_ = false;
};

class ShmListener final : public TokenListener {
 public:
  ShmListener(std::string address, std::string path, std::shared_ptr<Acceptor> acceptor)
      : address_(std::move(address)),
        path_(std::move(path)),
        acceptor_(std::move(acceptor)),
        fork_count_(ForkCount()) {}
  ~ShmListener() override {
    // In a forked child nothing of it runs.
    if (ForkCount() == fork_count_) RunOnReactor([this] { acceptor_->Stop(); });
  }
  std::string address() const override { return address_; }
  void Expect(const Token& token, ConnectDone done) override {
    acceptor_->expected().Expect(token, std::move(done));
  }
  void Forget(const Token& token) override { acceptor_->expected().Forget(token); }

  void Unlink() {
    if (!path_.empty()) unlink(path_.c_str());
  }

 private:
  const std::string address_;
  const std::string path_;
  const std::shared_ptr<Acceptor> acceptor_;
  const uint32_t fork_count_;
};

// The process's own listener, and the fork that made it. Guarded by ForkSafeMutex().
struct Own {
  std::shared_ptr<ShmListener> listener;
  uint32_t fork_count = 0;
};

Own& OwnListener() {
  static auto* const own = new Own;
  return *own;
}

std::shared_ptr<ShmListener> FindOwn() {
  std::lock_guard<std::mutex> lock(ForkSafeMutex());
  const Own& own = OwnListener();
  return own.fork_count == ForkCount() ? own.listener : nullptr;
}

// Not as a destructor of static storage: other threads may use the listener while the process ends.
void UnlinkAtExit() {
  if (const std::shared_ptr<ShmListener> own = FindOwn()) own->Unlink();
}

StatusOr<std::shared_ptr<ShmListener>> NewListener(const std::string& directory) {
  StatusOr<std::unique_ptr<MeetingSockets>> listening = MeetingSockets::Listen(directory);
  if (!listening.ok()) return listening.status();
  std::string address = (*listening)->address();
  std::string path = (*listening)->path();
  const auto acceptor = std::make_shared<Acceptor>(std::move(*listening));
  if (Status status = acceptor->Start(); !status.ok()) return status;
  return std::make_shared<ShmListener>(std::move(address), std::move(path), acceptor);
}

}  // namespace

StatusOr<std::shared_ptr<TokenListener>> ListenForPeers(const std::string& directory) {
  StatusOr<std::shared_ptr<ShmListener>> listener = NewListener(directory);
  if (!listener.ok()) return listener.status();
  return std::shared_ptr<TokenListener>(std::move(*listener));
}

StatusOr<std::shared_ptr<TokenListener>> ProcessListener() {
  if (std::shared_ptr<ShmListener> own = FindOwn()) return std::shared_ptr<TokenListener>(own);
  const char* const directory = std::getenv("AR_GRPC_SHM_DIR");
  StatusOr<std::shared_ptr<ShmListener>> made = NewListener(directory == nullptr ? "" : directory);
  if (!made.ok()) return made.status();
  static const int registered = std::atexit(UnlinkAtExit);
  static_cast<void>(registered);
  // Who comes second drops his own, and the child a parent's, which it must not stop.
  std::shared_ptr<ShmListener> dropped = std::move(*made);
  std::shared_ptr<TokenListener> listener;
  {
    std::lock_guard<std::mutex> lock(ForkSafeMutex());
    Own& own = OwnListener();
    if (!own.listener || own.fork_count != ForkCount()) {
      own.listener.swap(dropped);
      own.fork_count = ForkCount();
    }
    listener = own.listener;
  }
  // By the reactor's thread, for which its end would wait.
  if (dropped) static_cast<void>(StartOnReactor([dropped = std::move(dropped)] {}).ok());
  return listener;
}

}  // namespace ar_grpc::fabric::shm
