// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/connector.h"

#include <memory>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/ring_connection.h"
#include "third_party/ar_grpc/fabric/shm/attach.h"
#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"
#include "third_party/ar_grpc/fabric/shm/memory.h"

namespace ar_grpc::fabric::shm {
namespace {

constexpr int kRetryMs = 10;

// One call of Connect; all of it runs on the reactor's thread. The reactor's callbacks keep it.
class Attempt : public std::enable_shared_from_this<Attempt> {
 public:
  Attempt(std::string address, const Token& token, int timeout_ms, ConnectDone done)
      : address_(std::move(address)),
        token_(token),
        timeout_ms_(timeout_ms),
        done_(std::move(done)) {}

  void Start() {
    deadline_ = Reactor::Get().RunAfter(timeout_ms_, [self = shared_from_this()] {
      self->Finish(
          Status(StatusCode::kDeadlineExceeded, "no answer from " + self->address_ + " within " +
                                                    std::to_string(self->timeout_ms_) + " ms"));
    });
    if (Status status = Prepare(); !status.ok()) return Finish(std::move(status));
    ConnectAny();
  }

 private:
  Status Prepare() {
    StatusOr<std::vector<std::string>> parsed = ParseAddress(address_);
    if (!parsed.ok()) return parsed.status();
    StatusOr<SharedMemory> memory = CreateShared(ConnectionBytes(kRingBytes));
    if (!memory.ok()) return memory.status();
    StatusOr<UniqueFd> wake = NewWakeFd();
    if (!wake.ok()) return wake.status();
    StatusOr<UniqueFd> peer_wake = NewWakeFd();
    if (!peer_wake.ok()) return peer_wake.status();
    addresses_ = std::move(*parsed);
    memory_fd_ = std::move(memory->fd);
    parts_.memory = std::move(memory->data);
    parts_.ring_bytes = kRingBytes;
    parts_.role = Role::kConnector;
    parts_.wake = std::move(*wake);
    parts_.peer_wake = std::move(*peer_wake);
    return Status();
  }

  void ConnectAny() {
    Status status;
    for (const std::string& address : addresses_) {
      StatusOr<UniqueFd> connected = ConnectSocket(address);
      status = connected.status();
      if (status.ok()) {
        socket_ = std::move(*connected);
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
    if (Status status = CheckPeer(socket_.get()); !status.ok()) return status;
    const std::shared_ptr<MemfdRegion> offered = RegionTable::Get().Offered();
    Request request;
    request.token = token_;
    request.ring_bytes = kRingBytes;
    std::vector<int> fds = {memory_fd_.get(), parts_.wake.get(), parts_.peer_wake.get()};
    if (offered) {
      request.region_bytes = offered->size();
      fds.push_back(offered->read_only_fd());
    }
    if (Status status = SendPacket(socket_.get(), Encode(request), fds); !status.ok()) {
      return status;
    }
    return Reactor::Get().Add(socket_.get(), [self = shared_from_this()] { self->TakeAnswer(); });
  }

  void TakeAnswer() {
    StatusOr<std::optional<Packet>> packet = ReceivePacket(socket_.get());
    if (!packet.ok()) return Finish(packet.status());
    if (!packet->has_value()) return;
    Status status = Accept(**packet);
    if (!status.ok()) return Finish(std::move(status));
    Finish(std::unique_ptr<Connection>(std::make_unique<RingConnection>(std::move(parts_))));
  }

  Status Accept(const Packet& packet) {
    const StatusOr<Answer> answer = DecodeAnswer(packet.bytes);
    if (!answer.ok()) return answer.status();
    if (!answer->status.ok()) return answer->status;
    const bool offers = answer->region_bytes > 0;
    if (packet.fds.size() != (offers ? 1 : 0)) return WrongCount(packet.fds.size());
    if (!offers) return Status();
    StatusOr<RemoteRegion> remote =
        RegionTable::Get().MapRemote(packet.fds[0].get(), answer->region_bytes);
    if (remote.ok()) parts_.remote = std::move(*remote);
    return remote.status();
  }

  void Finish(StatusOr<std::unique_ptr<Connection>> result) {
    if (!done_) return;
    Reactor& reactor = Reactor::Get();
    reactor.Cancel(deadline_);
    reactor.Cancel(retry_);
    if (socket_.valid()) reactor.Remove(socket_.get());
    socket_.reset();
    std::exchange(done_, nullptr)(std::move(result));
  }

  const std::string address_;
  const Token token_;
  const int timeout_ms_;
  ConnectDone done_;
  uint64_t deadline_ = 0;
  uint64_t retry_ = 0;
  std::vector<std::string> addresses_;
  UniqueFd memory_fd_;
  RingConnection::Parts parts_;
  UniqueFd socket_;
};

}  // namespace

Status ConnectToPeer(const std::string& address, const Token& token, int timeout_ms,
                     ConnectDone done) {
  const auto attempt = std::make_shared<Attempt>(address, token, timeout_ms, std::move(done));
  return StartOnReactor([attempt] { attempt->Start(); });
}

}  // namespace ar_grpc::fabric::shm
