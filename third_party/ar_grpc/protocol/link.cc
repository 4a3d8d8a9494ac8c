// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/link.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "third_party/ar_grpc/base/wire.h"

namespace ar_grpc::protocol {
namespace {

constexpr uint8_t kReleaseMessage = 1;

fabric::Message ReleaseMessage(uint64_t ticket) {
  Writer writer;
  writer.Put(kReleaseMessage);
  writer.Put(ticket);
  const std::string bytes = writer.Take();
  fabric::Message message;
  std::copy(bytes.begin(), bytes.end(), message.bytes.begin());
  return message;
}

Status NoConnection() {
  return Status(StatusCode::kUnimplemented, "the link is TCP and moves nothing itself");
}

}  // namespace

Link::Link(Description description, std::unique_ptr<fabric::Connection> connection)
    : description_(std::move(description)), connection_(std::move(connection)) {}

StatusOr<bool> Link::FlushLocked() {
  while (!unsent_.empty()) {
    StatusOr<bool> sent = connection_->Post(ReleaseMessage(unsent_.front()));
    if (!sent.ok()) return sent;
    if (*sent) {
      posted_.push_back(unsent_.front());
      if (posted_.size() > kPostedKept) posted_.pop_front();
      unsent_.pop_front();
      continue;
    }
    // Refused: either the peer wakes this end when there is room, or there is room by now.
    StatusOr<bool> armed = connection_->ArmPost();
    if (!armed.ok()) return armed;
    if (*armed) return false;
  }
  return true;
}

StatusOr<size_t> Link::Write(const iovec* parts, int count) {
  if (connection_ == nullptr) return NoConnection();
  std::lock_guard<std::mutex> lock(write_mu_);
  StatusOr<bool> flushed = FlushLocked();
  if (!flushed.ok()) return flushed.status();
  return connection_->Write(parts, count);
}

StatusOr<bool> Link::ArmWrite() {
  if (connection_ == nullptr) return NoConnection();
  std::lock_guard<std::mutex> lock(write_mu_);
  return connection_->ArmWrite();
}

uint64_t Link::FarWindow() const {
  if (far_us() == 0 || connection_ == nullptr) return 0;
  return connection_->capabilities().stream_window;
}

uint64_t Link::CountEager(uint64_t bytes, Clock::time_point now) {
  const uint64_t window = FarWindow();
  if (window == 0) return 0;
  std::lock_guard<std::mutex> lock(eager_mu_);
  const double passed = std::chrono::duration<double, std::micro>(now - eager_since_).count();
  // Threads may have read the clock in another order.
  if (passed > 0) {
    const double taken = passed / far_us() * static_cast<double>(window);
    eager_ahead_ = std::max(eager_ahead_ - taken, 0.0);
    eager_since_ = now;
  }
  const auto ahead = static_cast<uint64_t>(eager_ahead_);
  eager_ahead_ += static_cast<double>(bytes);
  return ahead;
}

void Link::UncountEager(uint64_t bytes) {
  if (FarWindow() == 0) return;
  std::lock_guard<std::mutex> lock(eager_mu_);
  eager_ahead_ = std::max(eager_ahead_ - static_cast<double>(bytes), 0.0);
}

bool Link::QueueLocked(uint64_t ticket) {
  if (releases_ended_ || unsent_.size() >= kMostUnsent) return false;
  unsent_.push_back(ticket);
  return true;
}

bool Link::QueueRelease(uint64_t ticket) {
  if (!carries_stream() || closed()) return false;
  std::lock_guard<std::mutex> lock(write_mu_);
  return QueueLocked(ticket);
}

bool Link::PostRelease(uint64_t ticket) {
  if (!carries_stream() || closed()) return false;
  std::lock_guard<std::mutex> lock(write_mu_);
  if (!QueueLocked(ticket)) return false;
  if (FlushLocked().ok()) return true;
  // The connection has ended: whoever asked tells this one in another way. Those before it are
  // given by TakeUnconfirmedReleases.
  unsent_.pop_back();
  return false;
}

std::vector<uint64_t> Link::TakeUnconfirmedReleases() {
  std::lock_guard<std::mutex> lock(write_mu_);
  releases_ended_ = true;
  std::vector<uint64_t> tickets(posted_.begin(), posted_.end());
  tickets.insert(tickets.end(), unsent_.begin(), unsent_.end());
  posted_.clear();
  unsent_.clear();
  return tickets;
}

Status Link::FlushMessages() {
  if (connection_ == nullptr) return OkStatus();
  std::lock_guard<std::mutex> lock(write_mu_);
  return FlushLocked().status();
}

bool Link::HasUnsentMessages() {
  std::lock_guard<std::mutex> lock(write_mu_);
  return !unsent_.empty();
}

Status Link::TakeMessages(size_t most, std::vector<uint64_t>* released) {
  if (!carries_stream()) return OkStatus();
  fabric::Message message;
  for (size_t taken = 0; taken < most; ++taken) {
    StatusOr<bool> got = connection_->Take(&message);
    if (!got.ok()) return got.status();
    if (!*got) return OkStatus();
    Reader reader(std::string_view(reinterpret_cast<const char*>(message.bytes.data()),
                                   message.bytes.size()));
    uint8_t kind = 0;
    uint64_t ticket = 0;
    if (!reader.Get(&kind) || kind != kReleaseMessage || !reader.Get(&ticket)) {
      return Status(StatusCode::kInternal,
                    "the peer sent a message of unknown kind " + std::to_string(kind));
    }
    released->push_back(ticket);
  }
  return OkStatus();
}

void Link::Close(std::function<void()> done) {
  closed_.store(true);
  if (connection_ != nullptr) return connection_->Close(std::move(done));
  if (done) done();
}

bool Link::closed() const {
  return closed_.load() || (connection_ != nullptr && connection_->closed());
}

}  // namespace ar_grpc::protocol
