// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/queue_timer.h"

#include <grpc/support/time.h>
#include <grpcpp/impl/codegen/completion_queue_tag.h>

#include <memory>
#include <utility>

#include "src/core/lib/gprpp/time.h"
#include "src/core/lib/iomgr/closure.h"
#include "src/core/lib/iomgr/exec_ctx.h"
#include "src/core/lib/iomgr/timer.h"
#include "src/core/lib/surface/completion_queue.h"

namespace ar_grpc {
namespace {

// Two operations of the queue: an event gives its own back before it is handled, so that the other
// one holds the queue while the first one's event runs the function.
class TimerOfQueue final : public QueueTimer, public grpc::internal::CompletionQueueTag {
 public:
  TimerOfQueue(grpc_completion_queue* queue, std::function<void()> function)
      : queue_(queue), function_(std::move(function)) {
    grpc_timer_init_unset(&timer_);
    GRPC_CLOSURE_INIT(&on_time_, &TimerOfQueue::OnTime, this, grpc_schedule_on_exec_ctx);
  }

  bool Begin() {
    if (!grpc_cq_begin_op(queue_, tag())) return false;
    (void)grpc_cq_begin_op(queue_, tag());  // never refused while there is another
    return true;
  }
  void Start(std::chrono::milliseconds delay) override {
    grpc_core::ApplicationCallbackExecCtx callback_exec_ctx;
    grpc_core::ExecCtx exec_ctx;
    // gRPC counts whole milliseconds, and its own Now() rounds down.
    const gpr_timespec time = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                           gpr_time_from_millis(delay.count(), GPR_TIMESPAN));
    grpc_timer_init(&timer_, grpc_core::Timestamp::FromTimespecRoundUp(time), &on_time_);
  }
  void Cancel() override {
    grpc_core::ApplicationCallbackExecCtx callback_exec_ctx;
    grpc_core::ExecCtx exec_ctx;
    grpc_timer_cancel(&timer_);
  }

  // Of each of the two events, on the queue's thread; false: there is nothing to tell its user.
  bool FinalizeResult(void** /*tag*/, bool* /*status*/) override {
    if (function_ == nullptr) {
      delete this;
      return false;
    }
    std::exchange(function_, nullptr)();
    grpc_core::ApplicationCallbackExecCtx callback_exec_ctx;
    grpc_core::ExecCtx exec_ctx;
    End(&last_);
    return false;
  }

 private:
  static void OnTime(void* self, grpc_error_handle /*error*/) {
    auto* const timer = static_cast<TimerOfQueue*>(self);
    timer->End(&timer->first_);
  }
  void End(grpc_cq_completion* storage) {
    grpc_cq_end_op(
        queue_, tag(), absl::OkStatus(), [](void*, grpc_cq_completion*) {}, nullptr, storage);
  }
  void* tag() { return static_cast<grpc::internal::CompletionQueueTag*>(this); }

  grpc_completion_queue* const queue_;
  std::function<void()> function_;
  grpc_timer timer_;
  grpc_closure on_time_;
  grpc_cq_completion first_;
  grpc_cq_completion last_;
};

}  // namespace

QueueTimer* QueueTimer::Create(grpc::CompletionQueue* queue, std::function<void()> function) {
  auto timer = std::make_unique<TimerOfQueue>(queue->cq(), std::move(function));
  return timer->Begin() ? timer.release() : nullptr;
}

}  // namespace ar_grpc
