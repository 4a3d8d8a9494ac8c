// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/measure_stream.h"

#include <algorithm>
#include <array>

#include "third_party/ar_grpc/base/limits.h"

namespace ar_grpc::protocol::measuring {
namespace {

// A message of several frames, with the frames' headers (RFC 9113, 4.1), and one of next to
// nothing.
constexpr size_t kFrames = 4;
constexpr size_t kLargeBytes = kFrames * kFrameBytes;
constexpr size_t kHeaderBytes = 9;
constexpr size_t kSmallBytes = 64;

}  // namespace

Messages::Messages(Clock::time_point deadline)
    : deadline_(deadline), from_(kAreaBytes, 1), block_(kLargeBytes + kFrames * kHeaderBytes) {}

bool Messages::Small(Wire* wire, StreamTimes* times) {
  iovec part = {from_.data(), kSmallBytes};
  double send = 0;
  double receive = 0;
  if (!Pass(wire, &part, 1, kSmallBytes, &send, &receive)) return false;
  times->small_send.Add(send);
  times->small_receive.Add(receive);
  return true;
}

bool Messages::Large(Wire* wire, StreamTimes* times) {
  const size_t at = at_;
  at_ = (at_ + kLargeBytes) % kAreaBytes;
  double send = 0;
  double receive = 0;
  iovec whole = {from_.data() + at, kLargeBytes};
  if (!Pass(wire, &whole, 1, kLargeBytes, &send, &receive)) return false;
  times->plain_send.Add(send);
  uint8_t header[kHeaderBytes] = {};
  std::array<iovec, 2 * kFrames> framed;
  for (size_t i = 0; i < kFrames; ++i) {
    framed[2 * i] = {header, kHeaderBytes};
    framed[2 * i + 1] = {from_.data() + at + i * kFrameBytes, kFrameBytes};
  }
  const size_t size = kLargeBytes + kFrames * kHeaderBytes;
  if (!Pass(wire, framed.data(), framed.size(), size, &send, &receive)) return false;
  times->framed_send.Add(send);
  times->framed_receive.Add(receive);
  return true;
}

bool Messages::Fill(Wire* wire, StreamTimes* times) {
  constexpr uint64_t kMost = uint64_t{16} << 20;
  uint64_t room = 0;
  for (;;) {
    iovec part = {from_.data(), kLargeBytes};
    const int64_t wrote = wire->Write(&part, 1);
    if (wrote < 0) return false;
    room += static_cast<uint64_t>(wrote);
    if (wrote == 0 || room > kMost) break;
  }
  times->room = room;
  while (room > 0) {
    if (Clock::now() > deadline_) return false;
    const int64_t read = wire->Read(block_.data(), std::min<uint64_t>(room, block_.size()));
    if (read < 0) return false;
    room -= static_cast<uint64_t>(read);
  }
  wire->Woken();
  return true;
}

bool Messages::Pass(Wire* wire, iovec* parts, int count, size_t size, double* send,
                    double* receive) {
  if (!wire->Arm()) return false;
  *send = *receive = 0;
  size_t sent = 0;
  size_t received = 0;
  while (received < size) {
    if (Clock::now() > deadline_) return false;
    if (sent < size) {
      const Watch watch;
      const int64_t wrote = wire->Write(parts, count);
      *send += watch.us();
      if (wrote < 0) return false;
      sent += static_cast<size_t>(wrote);
      for (size_t left = static_cast<size_t>(wrote); left > 0;) {
        const size_t used = std::min(left, parts->iov_len);
        parts->iov_base = static_cast<uint8_t*>(parts->iov_base) + used;
        parts->iov_len -= used;
        left -= used;
        if (parts->iov_len == 0 && left > 0) ++parts, --count;
      }
      while (count > 0 && parts->iov_len == 0) ++parts, --count;
    }
    const Watch watch;
    Readable(wire->fd(), 0);
    wire->Woken();
    const int64_t read = wire->Read(block_.data() + received, size - received);
    if (read < 0) return false;
    received += static_cast<size_t>(read);
    if (received == size) wire->Arm();
    *receive += watch.us();
  }
  return true;
}

void TakeStream(const StreamTimes& times, Figures* figures) {
  if (!times.framed_receive.seen()) return;
  const double large = static_cast<double>(kLargeBytes);
  figures->send.start_us = times.small_send.us();
  figures->send.operation_us =
      std::max(times.framed_send.us() - times.plain_send.us(), 0.0) / static_cast<double>(kFrames);
  figures->send.bytes_per_us = times.plain_send.Rate(large, times.small_send.us());
  figures->receive.start_us = times.small_receive.us();
  // The frames are among the bytes: they cannot be received without.
  figures->receive.operation_us = 0;
  figures->receive.bytes_per_us = times.framed_receive.Rate(large, times.small_receive.us());
  // The receiver begins when it is woken, by the first of what the sender writes at once; the
  // stream does not run empty while half of its room is full. On one core nothing is done at the
  // same time.
  figures->window_bytes = UsableCores() > 1 ? times.room / 2 : uint64_t{1} << 62;
}

}  // namespace ar_grpc::protocol::measuring
