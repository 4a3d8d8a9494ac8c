// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The events of a device: which queues have completions, and what has failed.

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"

namespace ar_grpc::fabric::verbs {
namespace {

// A round of events; the reactor comes back for more.
constexpr int kMostEvents = 64;

Status NonBlocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) return ErrnoStatus(errno, "fcntl");
  return Status();
}

}  // namespace

Status Device::Watch() {
  // Also where descriptors are blocking: a look without an event would stop the reactor.
  for (const int fd : {channel_->fd, context_->async_fd}) {
    if (Status status = NonBlocking(fd); !status.ok()) return status;
  }
  const std::weak_ptr<Device> weak = weak_from_this();
  Status status = Reactor::Get().Add(channel_->fd, [weak] {
    if (const std::shared_ptr<Device> self = weak.lock()) self->TakeCompletionEvents();
  });
  if (!status.ok()) return status;
  return Reactor::Get().Add(context_->async_fd, [weak] {
    if (const std::shared_ptr<Device> self = weak.lock()) self->TakeAsyncEvents();
  });
}

void Device::Add(abi::CompletionQueue* queue, abi::QueuePair* pair,
                 std::shared_ptr<EventTarget> target) {
  std::lock_guard<std::mutex> lock(mu_);
  watched_[queue] = {pair, std::move(target)};
  pairs_[pair] = queue;
}

void Device::Remove(abi::CompletionQueue* queue) {
  std::shared_ptr<EventTarget> dropped;  // without the lock
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = watched_.find(queue);
  if (found == watched_.end()) return;
  dropped = std::move(found->second.target);
  // A new pair may have the place of this one.
  if (const auto pair = pairs_.find(found->second.pair);
      pair != pairs_.end() && pair->second == queue) {
    pairs_.erase(pair);
  }
  watched_.erase(found);
}

std::shared_ptr<EventTarget> Device::Find(abi::CompletionQueue* queue) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = watched_.find(queue);
  return found == watched_.end() ? nullptr : found->second.target;
}

std::shared_ptr<EventTarget> Device::Find(abi::QueuePair* pair) const {
  abi::CompletionQueue* queue = nullptr;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (const auto found = pairs_.find(pair); found != pairs_.end()) queue = found->second;
  }
  return Find(queue);
}

// A queue is destroyed on the reactor only, so one that an event names is still there.
void Device::TakeCompletionEvents() {
  for (int i = 0; i < kMostEvents; ++i) {
    abi::CompletionQueue* queue = nullptr;
    void* user = nullptr;
    if (library_.get_cq_event(channel_, &queue, &user) != 0) {
      if (errno != EAGAIN && errno != EINTR) Lose(channel_->fd, errno);
      return;
    }
    library_.ack_cq_events(queue, 1);
    if (const std::shared_ptr<EventTarget> target = Find(queue)) target->OnCompletions(queue);
  }
}

void Device::TakeAsyncEvents() {
  bool gids_changed = false;
  for (int i = 0; i < kMostEvents && TakeAsyncEvent(&gids_changed); ++i) {
  }
  if (gids_changed) TellOfGids();
}

bool Device::TakeAsyncEvent(bool* gids_changed) {
  abi::AsyncEvent event = {};
  if (library_.get_async_event(context_, &event) != 0) {
    if (errno != EAGAIN && errno != EINTR) Lose(context_->async_fd, errno);
    return false;
  }
  const std::string what = name_ + ": " + library_.event_type_str(event.type);
  std::shared_ptr<EventTarget> target;
  switch (event.type) {
    case abi::kEventQueueError:
      target = Find(event.queue);
      break;
    case abi::kEventPairFatal:
    case abi::kEventPairRequestError:
    case abi::kEventPairAccessError:
      target = Find(event.pair);
      break;
    case abi::kEventGidChange:
      *gids_changed = true;
      break;
    default:
      break;
  }
  // Before anything else: what an event names is not destroyed until then.
  library_.ack_async_event(&event);
  if (target) target->OnFailure(what);
  if (event.type == abi::kEventDeviceFatal) FailAll(what);
  return true;
}

// A port that cannot be asked now tells of itself in other ways.
void Device::TellOfGids() {
  abi::PortAttributes attributes = {};
  if (library_.query_port(context_, port_, &attributes) != 0) return;
  StatusOr<std::vector<abi::GidEntry>> table = QueryGids(port_, attributes);
  if (!table.ok()) return;
  table->erase(std::remove_if(table->begin(), table->end(),
                              [this](const abi::GidEntry& one) { return one.port != port_; }),
               table->end());
  for (const std::shared_ptr<EventTarget>& target : Targets()) target->OnGidChange(*table);
}

std::vector<std::shared_ptr<EventTarget>> Device::Targets() const {
  std::vector<std::shared_ptr<EventTarget>> targets;
  std::lock_guard<std::mutex> lock(mu_);
  for (const auto& [queue, watched] : watched_) targets.push_back(watched.target);
  return targets;
}

// The kernel has taken the device away: its descriptor would poll readable for ever.
void Device::Lose(int fd, int error) {
  Reactor::Get().Remove(fd);
  FailAll(ErrnoStatus(error, name_ + ": its events").message());
}

void Device::FailAll(const std::string& what) {
  if (failed_.exchange(true, std::memory_order_acq_rel)) return;
  Log(Severity::kError, what);
  const std::vector<std::shared_ptr<EventTarget>> targets = Targets();
  std::function<void()> tell;
  {
    std::lock_guard<std::mutex> lock(mu_);
    tell.swap(tell_failure_);
  }
  for (const std::shared_ptr<EventTarget>& target : targets) target->OnFailure(what);
  if (tell) tell();
}

void Device::WhenFailed(std::function<void()> tell) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!failed()) {
      tell_failure_ = std::move(tell);
      return;
    }
  }
  tell();
}

}  // namespace ar_grpc::fabric::verbs
