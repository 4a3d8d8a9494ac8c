// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/ring_connection.h"

#include <cstring>
#include <string>
#include <utility>

namespace ar_grpc::fabric {

namespace {

constexpr size_t kDataOffset = 4096;
static_assert(sizeof(ConnectionHeader) <= kDataOffset);

}  // namespace

size_t ConnectionBytes(size_t ring_bytes) {
  return kDataOffset + 2 * ring_bytes + 2 * kMessageBytes;
}

RingConnection::RingConnection(Parts parts)
    : parts_(std::move(parts)),
      header_(reinterpret_cast<ConnectionHeader*>(parts_.memory.get())),
      fork_count_(ForkCount()),
      sends_(View(true, false)),
      posts_(View(true, true)),
      reads_(View(false, false)),
      takes_(View(false, true)) {}

RingView RingConnection::View(bool sends, bool messages) const {
  const int direction = sends == (parts_.end == RingEnd::kConnector) ? 0 : 1;
  RingControl* const bytes = &header_->bytes[direction];
  uint8_t* const data = parts_.memory.get() + kDataOffset;
  Doorbell* const doorbell = parts_.doorbell.get();
  // One flag for both: a reader that is woken for the stream is awake for messages, too.
  if (!messages) {
    return {bytes, &bytes->reader_armed, data + direction * parts_.ring_bytes, parts_.ring_bytes,
            doorbell};
  }
  return {&header_->messages[direction], &bytes->reader_armed,
          data + 2 * parts_.ring_bytes + direction * kMessageBytes, kMessageBytes, doorbell};
}

Status RingConnection::Usable() const {
  if (ForkCount() != fork_count_) {
    return Status(StatusCode::kFailedPrecondition, "the connection belongs to the parent process");
  }
  if (!is_broken_.load(std::memory_order_acquire)) return Status();
  std::lock_guard<std::mutex> lock(mu_);
  return broken_;
}

Status RingConnection::Open() const {
  if (closed_.load(std::memory_order_seq_cst)) {
    return Status(StatusCode::kUnavailable, "closed by this end");
  }
  const int peer = parts_.end == RingEnd::kConnector ? 1 : 0;
  if (header_->closed[peer].load(std::memory_order_seq_cst) != 0) {
    return Status(StatusCode::kUnavailable, "closed by the peer");
  }
  return Status();
}

Status RingConnection::Break(Status status) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (broken_.ok()) broken_ = std::move(status);
  }
  is_broken_.store(true, std::memory_order_release);
  Close(nullptr);
  return Usable();
}

StatusOr<size_t> RingConnection::Write(const iovec* parts, int count) {
  if (Status status = Usable(); !status.ok()) return status;
  if (Status status = Open(); !status.ok()) return status;
  StatusOr<size_t> taken = sends_.Write(parts, count);
  if (!taken.ok()) return Break(taken.status());
  sent_.fetch_add(*taken, std::memory_order_relaxed);
  return taken;
}

StatusOr<size_t> RingConnection::Read(void* into, size_t size) {
  if (Status status = Usable(); !status.ok()) return status;
  // Looked at first: whatever was written before the close is in the ring by then.
  const Status open = Open();
  StatusOr<size_t> taken = reads_.Read(into, size);
  if (!taken.ok()) return Break(taken.status());
  if (*taken == 0 && size > 0 && !open.ok()) return open;
  received_.fetch_add(*taken, std::memory_order_relaxed);
  return taken;
}

StatusOr<size_t> RingConnection::Readable() {
  if (Status status = Usable(); !status.ok()) return status;
  const Status open = Open();
  StatusOr<size_t> bytes = reads_.Readable();
  if (!bytes.ok()) return Break(bytes.status());
  if (*bytes == 0 && !open.ok()) return open;
  return bytes;
}

StatusOr<bool> RingConnection::Post(const Message& message) {
  if (Status status = Usable(); !status.ok()) return status;
  if (Status status = Open(); !status.ok()) return status;
  StatusOr<bool> posted = posts_.WriteAll(message.bytes.data(), Message::kSize);
  if (!posted.ok()) return Break(posted.status());
  return posted;
}

StatusOr<bool> RingConnection::Take(Message* message) {
  if (Status status = Usable(); !status.ok()) return status;
  const Status open = Open();
  StatusOr<size_t> taken = takes_.Read(message->bytes.data(), Message::kSize);
  if (!taken.ok()) return Break(taken.status());
  if (*taken == Message::kSize) return true;
  if (*taken != 0) return Break(Status(StatusCode::kInternal, "the peer sent a part of a message"));
  if (!open.ok()) return open;
  return false;
}

Capabilities RingConnection::capabilities() const {
  Capabilities can;
  can.stream = true;
  can.get = can.map = can.inline_get = parts_.remote != nullptr;
  can.put = can.get && parts_.put;
  return can;
}

Status RingConnection::Accessible() const {
  if (Status status = Usable(); !status.ok()) return status;
  if (!parts_.remote) {
    return Status(StatusCode::kUnimplemented, "the peer's release has no keys to its memory");
  }
  return Open();
}

StatusOr<Key> RingConnection::Export(const std::shared_ptr<Registration>& registration) {
  if (Status status = Accessible(); !status.ok()) return status;
  if (!registration) return Status(StatusCode::kInvalidArgument, "no registration");
  return parts_.remote->Export(registration);
}

Status RingConnection::CheckedGet(const Key& key, uint64_t offset, void* into, size_t size) {
  if (Status status = Accessible(); !status.ok()) return status;
  const StatusOr<Lease> lease = parts_.remote->Find(key, offset, size);
  if (!lease.ok()) return lease.status();
  if (size == 0) return Status();
  std::memcpy(into, lease->data.get(), size);
  // A peer that closed meanwhile may have put the memory to another use.
  if (Status status = Open(); !status.ok()) return status;
  got_.fetch_add(size, std::memory_order_relaxed);
  return Status();
}

void RingConnection::Get(const Key& key, uint64_t offset, void* into, size_t size,
                         std::shared_ptr<const void>, Done done) {
  // Held here: `done` may destroy this connection.
  const std::shared_ptr<Operations> operations = parts_.operations;
  operations->Enter();
  done(CheckedGet(key, offset, into, size));
  operations->Leave();
}

Status RingConnection::CheckedPut(const Key& key, uint64_t offset, const void* from, size_t size) {
  if (Status status = Accessible(); !status.ok()) return status;
  if (!parts_.put) {
    return Status(StatusCode::kUnimplemented, "this fabric's peers give their memory for reading");
  }
  const StatusOr<std::shared_ptr<uint8_t>> to = parts_.remote->FindWritable(key, offset, size);
  if (!to.ok()) return to.status();
  if (size > 0) std::memcpy(to->get(), from, size);
  return Open();
}

void RingConnection::Put(const Key& key, uint64_t offset, const void* from, size_t size,
                         std::shared_ptr<const void>, Done done) {
  const std::shared_ptr<Operations> operations = parts_.operations;
  operations->Enter();
  done(CheckedPut(key, offset, from, size));
  operations->Leave();
}

StatusOr<Lease> RingConnection::Map(const Key& key, uint64_t offset, size_t size) {
  if (Status status = Accessible(); !status.ok()) return status;
  return parts_.remote->Find(key, offset, size);
}

StatusOr<bool> RingConnection::ArmRead() {
  if (Status status = Usable(); !status.ok()) return status;
  StatusOr<bool> bytes = reads_.Arm();
  if (!bytes.ok()) return Break(bytes.status());
  if (!*bytes) return false;
  StatusOr<bool> messages = takes_.Arm();
  if (!messages.ok()) return Break(messages.status());
  if (!*messages) return false;
  // Close wakes whether armed or not, so it is enough to look once after arming. What was written
  // before the close then shows in Readable or Take, which look at the flag before the ring.
  if (Status open = Open(); !open.ok()) {
    StatusOr<size_t> readable = Readable();
    if (!readable.ok() && is_broken_.load(std::memory_order_acquire)) return readable.status();
    StatusOr<bool> empty = takes_.Arm();
    if (!empty.ok()) return Break(empty.status());
    if (readable.ok() || !*empty) return false;
    return open;
  }
  return true;
}

StatusOr<bool> RingConnection::ArmWrite() {
  if (Status status = Usable(); !status.ok()) return status;
  if (Status status = Open(); !status.ok()) return status;
  bool starved = false;
  for (RingWriter* const ring : {&sends_, &posts_}) {
    if (!ring->starved()) continue;
    starved = true;
    StatusOr<bool> armed = ring->Arm();
    if (!armed.ok()) return Break(armed.status());
    if (!*armed) return false;
  }
  if (Status status = Open(); !status.ok()) return status;
  return starved;
}

StatusOr<bool> RingConnection::ArmPost() {
  if (Status status = Usable(); !status.ok()) return status;
  StatusOr<bool> armed = posts_.Arm();
  if (!armed.ok()) return Break(armed.status());
  // Close wakes whether armed or not.
  if (Status status = Open(); !status.ok()) return status;
  return armed;
}

void RingConnection::Close(std::function<void()> done) {
  // A fork's copy must not hang up on the parent's peer.
  if (ForkCount() == fork_count_) {
    const int self = parts_.end == RingEnd::kConnector ? 0 : 1;
    const bool first = !closed_.exchange(true);
    // By each call: where another thread was first it may not have come this far, and no access of
    // the peer's may begin after `done`.
    header_->closed[self].store(1, std::memory_order_seq_cst);
    if (first) {
      parts_.doorbell->WakePeer();
      // And whichever thread of this end waits.
      parts_.doorbell->WakeSelf();
    }
  }
  if (done) parts_.operations->WhenIdle(std::move(done));
}

}  // namespace ar_grpc::fabric
