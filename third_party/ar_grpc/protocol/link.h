// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_LINK_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_LINK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/protocol/hello.h"

namespace ar_grpc::protocol {

enum class End { kClient, kServer };

// The same at both ends of a link: drawn by the server, told in its answer.
using LinkId = Token;

// An established gRPC connection to a peer that speaks AR-gRPC: what the fabric of its handshake
// carries of it. The stream belongs to the gRPC endpoint, the messages to the rendezvous.
// Thread-safe, but for Read, Readable and TakeMessages of the stream: one reader.
class Link {
 public:
  using Clock = std::chrono::steady_clock;
  struct Description {
    End end = End::kClient;  // this process's
    NodeId peer{};
    std::string address;  // the peer's, as gRPC writes it
    std::string fabric;   // "tcp" without a connection
    LinkId id{};          // matters only with a connection
    // Features that both ends have (hello.h).
    uint64_t features = 0;
    // This end, a server's, ends the connection at about this age, while its client lives and comes
    // back; 0: it does not.
    std::chrono::milliseconds retires_after{0};
    double far_us = 0;  // Figures::far_us of the peer
  };

  // `connection` is nullptr where all goes over TCP: the link is then known, but moves nothing.
  Link(Description description, std::unique_ptr<fabric::Connection> connection);

  End end() const { return description_.end; }
  const NodeId& peer() const { return description_.peer; }
  const std::string& address() const { return description_.address; }
  const std::string& fabric() const { return description_.fabric; }
  const LinkId& id() const { return description_.id; }
  uint64_t features() const { return description_.features; }
  std::chrono::milliseconds retires_after() const { return description_.retires_after; }
  double far_us() const { return description_.far_us; }
  fabric::Connection* connection() const { return connection_.get(); }
  // Whether gRPC's stream and the messages go over the connection, not over TCP.
  bool carries_stream() const { return connection_ && connection_->capabilities().stream; }
  // Whether this end can read what the peer exports.
  bool can_get() const { return connection_ && connection_->capabilities().get; }

  // As the Connection's; messages that wait go first.
  StatusOr<size_t> Write(const iovec* parts, int count);
  StatusOr<bool> ArmWrite();

  // Releases that wait, at most: more are refused, as a peer that reads no message must not fill
  // this process's memory.
  static constexpr size_t kMostUnsent = size_t{1} << 16;
  // The last posted releases that are remembered: more than a peer leaves unread (fabric/shm has
  // room for 256 messages).
  static constexpr size_t kPostedKept = 512;

  // Counts a tensor that goes into the stream, and gives the bytes of those before it that a far
  // peer has not had the time to take: a window of the stream's takes a round trip. 0 of a near
  // one, and of a stream without a window.
  uint64_t CountEager(uint64_t bytes, Clock::time_point now);
  // One that was counted goes another way.
  void UncountEager(uint64_t bytes);

  // Tells the peer that it may let go what it holds under `ticket`. false: no messages go over this
  // link, or it has ended, or too many wait.
  bool PostRelease(uint64_t ticket);
  // The same, but the message waits for FlushMessages, or for the next Write.
  bool QueueRelease(uint64_t ticket);
  // Ends the releases of this link and gives those that the peer may not have read, the oldest
  // first: they are to be told in another way. To release a ticket twice does no harm.
  std::vector<uint64_t> TakeUnconfirmedReleases();
  // Sends messages that wait; to be called when the wake descriptor has been readable.
  Status FlushMessages();
  bool HasUnsentMessages();
  // Takes up to `most` messages that have come; their tickets go to `released`. kInternal for a
  // message of unknown kind.
  Status TakeMessages(size_t most, std::vector<uint64_t>* released);

  // Closes both ends. `done`, which may be empty, as in fabric::Connection::Close.
  void Close(std::function<void()> done = nullptr);
  // Whether either end has closed it. A copy that ended before it was closed is good.
  bool closed() const;

 private:
  // The window of the stream to a far peer, in bytes; 0 for a near peer, or a stream without one.
  uint64_t FarWindow() const;
  // Leaves a release for FlushLocked. false: too many wait, or there are to be no more.
  bool QueueLocked(uint64_t ticket);
  // Sends what waits; false when there is no room, and then the peer wakes this end.
  StatusOr<bool> FlushLocked();

  const Description description_;
  const std::unique_ptr<fabric::Connection> connection_;
  std::atomic<bool> closed_{false};
  std::mutex write_mu_;
  // Guarded by write_mu_.
  std::deque<uint64_t> unsent_;  // tickets to release
  std::deque<uint64_t> posted_;  // the last ones, the oldest first
  bool releases_ended_ = false;
  std::mutex eager_mu_;
  // Guarded by eager_mu_.
  double eager_ahead_ = 0;  // bytes, at eager_since_
  Clock::time_point eager_since_;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_LINK_H_
