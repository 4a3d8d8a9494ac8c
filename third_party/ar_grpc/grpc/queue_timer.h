// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_QUEUE_TIMER_H_
#define THIRD_PARTY_AR_GRPC_GRPC_QUEUE_TIMER_H_

#include <grpcpp/completion_queue.h>

#include <chrono>
#include <functional>

namespace ar_grpc {

// Runs a function once, later, on a thread that works on a completion queue. A queue that is shut
// down does not end before the function has returned, so that the function may begin calls there.
// It deletes itself after that.
class QueueTimer {
 public:
  // nullptr where `queue` has ended, or ends when the event that this thread handles is over: no
  // call may be begun on it any more.
  static QueueTimer* Create(grpc::CompletionQueue* queue, std::function<void()> function);

  // Once. `function` runs no sooner than `delay` from now, unless it is cancelled.
  virtual void Start(std::chrono::milliseconds delay) = 0;
  // From any thread until `function` begins to run: it runs soon. Before Start this does nothing.
  virtual void Cancel() = 0;

 protected:
  virtual ~QueueTimer() = default;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_QUEUE_TIMER_H_
