// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/self_connection.h"

#include <poll.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/os.h"

namespace ar_grpc::protocol {
namespace {

using Clock = std::chrono::steady_clock;

enum End { kServer = 0, kClient = 1 };

// What the two attachments say. Their events may still run when nobody waits any more, so they hold
// it. Frames are handed over by the thread that waits: an event must not block, and TakeFrame is
// for one thread at a time.
struct Meeting {
  std::mutex mu;
  // Guarded by mu.
  std::deque<std::pair<End, std::string>> frames;  // to whom
  std::optional<StatusOr<std::unique_ptr<fabric::Connection>>> ends[2];

  UniqueFd bell;
};

fabric::AttachEvents EventsOf(const std::shared_ptr<Meeting>& meeting, End end) {
  fabric::AttachEvents events;
  events.send = [meeting, end](std::string frame) {
    std::lock_guard<std::mutex> lock(meeting->mu);
    meeting->frames.emplace_back(end == kServer ? kClient : kServer, std::move(frame));
    WakeUp(meeting->bell.get());
  };
  events.done = [meeting, end](StatusOr<std::unique_ptr<fabric::Connection>> connection) {
    std::lock_guard<std::mutex> lock(meeting->mu);
    meeting->ends[end] = std::move(connection);
    WakeUp(meeting->bell.get());
  };
  return events;
}

}  // namespace

StatusOr<SelfConnection> ConnectToSelf(fabric::Context* context, Clock::time_point deadline) {
  const auto meeting = std::make_shared<Meeting>();
  StatusOr<UniqueFd> bell = NewWakeFd();
  if (!bell.ok()) return bell.status();
  meeting->bell = std::move(*bell);
  StatusOr<std::unique_ptr<fabric::Attachment>> server =
      context->Accept(EventsOf(meeting, kServer));
  if (!server.ok()) return server.status();
  StatusOr<std::unique_ptr<fabric::Attachment>> client =
      context->Connect(EventsOf(meeting, kClient));
  if (!client.ok()) return client.status();
  for (;;) {
    std::deque<std::pair<End, std::string>> frames;
    {
      std::lock_guard<std::mutex> lock(meeting->mu);
      for (const auto& end : meeting->ends) {
        if (end.has_value() && !end->ok()) return end->status();
      }
      if (meeting->ends[kServer].has_value() && meeting->ends[kClient].has_value()) {
        return SelfConnection{std::move(**meeting->ends[kServer]),
                              std::move(**meeting->ends[kClient])};
      }
      frames.swap(meeting->frames);
    }
    for (const auto& [to, frame] : frames) (to == kServer ? *server : *client)->TakeFrame(frame);
    if (!frames.empty()) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) {
      return Status(StatusCode::kDeadlineExceeded,
                    std::string("no connection over ") + context->name() + " in time");
    }
    pollfd bell_rings = {meeting->bell.get(), POLLIN, 0};
    poll(&bell_rings, 1, static_cast<int>(left.count()));
    ClearWakeUp(meeting->bell.get());
  }
}

}  // namespace ar_grpc::protocol
