// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/connector.h"

#include <fcntl.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/ring_connection.h"
#include "third_party/ar_grpc/fabric/shm/attach.h"
#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"
#include "third_party/ar_grpc/fabric/shm/peer_segments.h"
#include "third_party/ar_grpc/fabric/shm/shared_doorbell.h"
#include "third_party/ar_grpc/memory/shared_memory.h"

namespace ar_grpc::fabric::shm {
namespace {

constexpr int kRetryMs = 10;

// One call of ConnectToPeer; all of it runs on the reactor's thread. The reactor's callbacks keep
// it.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(TokenFrame frame, ConnectDone done) : frame_(std::move(frame)), done_(std::move(done)) {}

  void Start() {
    if (Status status = Prepare(); !status.ok()) return Finish(std::move(status));
    ConnectAny();
  }

  void Stop() {
    done_ = nullptr;
    Release();
  }

 private:
  bool old() const { return frame_.version == kOldVersion; }

  Status Prepare() {
    if (frame_.version != kOldVersion && frame_.version != kVersion) {
      return Status(StatusCode::kUnimplemented,
                    "the peer speaks version " + std::to_string(frame_.version) +
                        " of shared memory, this end version " + std::to_string(kVersion));
    }
    StatusOr<std::vector<std::string>> parsed = ParseAddress(frame_.address);
    if (!parsed.ok()) return parsed.status();
    StatusOr<memory::SharedMemory> memory = memory::CreateShared(ConnectionBytes(kRingBytes));
    if (!memory.ok()) return memory.status();
    const char* const directory = std::getenv("AR_GRPC_SHM_DIR");
    addresses_ = AddressesHere(*parsed, directory == nullptr ? "" : directory);
    if (addresses_.empty()) {
      return Status(StatusCode::kUnavailable,
                    "the peer can be met in a directory only: set AR_GRPC_SHM_DIR to it");
    }
    memory_fd_ = std::move(memory->fd);
    parts_.memory = std::move(memory->data);
    parts_.ring_bytes = kRingBytes;
    parts_.end = RingEnd::kConnector;
    UniqueFd own;
    UniqueFd peers;
    if (Status status = MakeBell(&own, &passed_bell_); !status.ok()) return status;
    if (Status status = MakeBell(&peers, &passed_peer_bell_); !status.ok()) return status;
    auto doorbell = NewSharedDoorbell(frame_.version, std::move(own), std::move(peers));
    if (doorbell.ok()) parts_.doorbell = std::move(*doorbell);
    return doorbell.status();
  }

  Status MakeBell(UniqueFd* kept, UniqueFd* passed) {
    StatusOr<UniqueFd> bell = NewBell(frame_.version);
    if (!bell.ok()) return bell.status();
    *kept = std::move(*bell);
    passed->reset(fcntl(kept->get(), F_DUPFD_CLOEXEC, 0));
    return passed->valid() ? Status() : ErrnoStatus(errno, "dup");
  }

  void ConnectAny() {
    retry_ = 0;
    Status status;
    for (const std::string& address : addresses_) {
      StatusOr<UniqueFd> connected = ConnectSocket(address);
      status = connected.status();
      if (status.ok()) {
        peer_ = std::make_shared<PeerSegments>(PeerSocket(std::move(*connected)));
        status = Ask();
        if (status.ok()) return;
        break;
      }
      if (status.code() == StatusCode::kAborted) {
        retry_ =
            Reactor::Get().RunAfter(kRetryMs, [self = shared_from_this()] { self->ConnectAny(); });
        return;
      }
    }
    Finish(std::move(status));
  }

  Status Ask() {
    if (Status status = CheckPeer(peer_->socket()); !status.ok()) return status;
    AttachRequest request;
    request.version = frame_.version;
    request.token = frame_.token;
    request.ring_bytes = kRingBytes;
    if (Status status = SendPacket(peer_->socket(), Encode(request),
                                   {memory_fd_.get(), passed_bell_.get(), passed_peer_bell_.get()});
        !status.ok()) {
      return status;
    }
    for (UniqueFd* const sent : {&memory_fd_, &passed_bell_, &passed_peer_bell_}) sent->reset();
    return Reactor::Get().Add(peer_->socket(), [self = shared_from_this()] { self->TakePacket(); });
  }

  void TakePacket() {
    StatusOr<std::optional<Packet>> packet = ReceivePacket(peer_->socket());
    if (!packet.ok()) return Finish(packet.status());
    if (!packet->has_value()) return;
    // The acceptor's owner may have exported memory before we are told that there is a connection.
    if (!old() && IsAnnouncement((*packet)->bytes)) {
      if (Status status = peer_->Take(**packet); !status.ok()) Finish(std::move(status));
      return;
    }
    if (Status status = CheckAnswer(**packet); !status.ok()) return Finish(std::move(status));
    Reactor::Get().Remove(peer_->socket());
    if (!old()) parts_.remote = std::move(peer_);
    Finish(std::unique_ptr<Connection>(std::make_unique<RingConnection>(std::move(parts_))));
  }

  Status CheckAnswer(const Packet& packet) const {
    const StatusOr<AttachAnswer> answer = DecodeAnswer(packet.bytes);
    if (!answer.ok()) return answer.status();
    if (!answer->status.ok()) return answer->status;
    if (answer->version != frame_.version) {
      return Status(StatusCode::kInvalidArgument, "the peer answered in another version");
    }
    const size_t expected = answer->region_bytes > 0 ? 1 : 0;
    return packet.fds.size() == expected ? Status() : WrongCount(packet.fds.size());
  }

  void Release() {
    Reactor::Get().Cancel(retry_);
    if (peer_) Reactor::Get().Remove(peer_->socket());
    peer_.reset();
    parts_ = RingConnection::Parts();
    for (UniqueFd* const fd : {&memory_fd_, &passed_bell_, &passed_peer_bell_}) fd->reset();
  }

  void Finish(StatusOr<std::unique_ptr<Connection>> result) {
    Release();
    if (const ConnectDone done = std::exchange(done_, nullptr)) done(std::move(result));
  }

  const TokenFrame frame_;
  ConnectDone done_;
  uint64_t retry_ = 0;
  std::vector<std::string> addresses_;
  UniqueFd memory_fd_;
  UniqueFd passed_bell_;
  UniqueFd passed_peer_bell_;
  RingConnection::Parts parts_;
  std::shared_ptr<PeerSegments> peer_;
};

}  // namespace

std::function<void()> ConnectToPeer(const TokenFrame& frame, ConnectDone done) {
  const auto attempt = std::make_shared<Attempt>(frame, done);
  if (Status status = StartOnReactor([attempt] { attempt->Start(); }); !status.ok()) {
    done(std::move(status));
    return nullptr;
  }
  return [attempt] {
    // Where the reactor has no thread the attempt has not begun either.
    static_cast<void>(StartOnReactor([attempt] { attempt->Stop(); }));
  };
}

}  // namespace ar_grpc::fabric::shm
