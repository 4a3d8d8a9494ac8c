// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/deadline_timer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <utility>

#include "src/core/lib/gprpp/time.h"
#include "src/core/lib/iomgr/closure.h"
#include "src/core/lib/iomgr/exec_ctx.h"
#include "src/core/lib/iomgr/timer.h"

namespace ar_grpc {

// Holds itself until gRPC has run its closure, which it does once, also for a cancelled timer.
struct DeadlineTimer::Armed {
  protocol::Instant deadline;
  std::function<void()> on_time;
  std::atomic<bool> over{false};
  grpc_timer timer;
  grpc_closure closure;
  std::shared_ptr<Armed> self;
};

void DeadlineTimer::Set(protocol::Instant deadline, std::function<void()> on_time) {
  if (armed_ != nullptr && armed_->deadline == deadline && !armed_->over.load()) return;
  Cancel();
  if (deadline == protocol::Instant::max()) return;
  armed_ = std::make_shared<Armed>();
  armed_->deadline = deadline;
  armed_->on_time = std::move(on_time);
  armed_->self = armed_;
  GRPC_CLOSURE_INIT(
      &armed_->closure,
      [](void* arg, grpc_error_handle error) {
        const std::shared_ptr<Armed> armed = std::move(static_cast<Armed*>(arg)->self);
        armed->over.store(true);
        const std::function<void()> run = std::move(armed->on_time);
        if (error.ok()) run();
      },
      armed_.get(), nullptr);
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
          .count();
  grpc_core::ExecCtx::Get()->InvalidateNow();
  grpc_timer_init(
      &armed_->timer,
      grpc_core::Timestamp::Now() + grpc_core::Duration::Milliseconds(std::max<int64_t>(left, 0)),
      &armed_->closure);
}

void DeadlineTimer::Cancel() {
  if (armed_ == nullptr) return;
  grpc_timer_cancel(&armed_->timer);
  armed_.reset();
}

}  // namespace ar_grpc
