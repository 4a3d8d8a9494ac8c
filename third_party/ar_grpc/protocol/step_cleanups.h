// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_STEP_CLEANUPS_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_STEP_CLEANUPS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace ar_grpc::protocol {

// Steps that have ended, and whose remains at one peer are to be cleaned up. No step waits for
// that, so it need not be a call of its own: it travels in the request that starts the next step
// (piggybacked, as TCP's acknowledgements are), which saves who trains in a loop a call a step.
//
// The peer must know of it: each of its answers says so, and until one has, and again after one
// that did not, the caller makes the call. What no request has taken along when a timer of
// kPatienceMs is over is sent alone.
//
// A cleanup may arrive late, and twice, which does no harm because no two steps that are kept have
// one id: steps of which this does not hold go by calls (KeepNoMore). Thread-safe.
class StepCleanups {
 public:
  static constexpr int kPatienceMs = 10;

  // Starts the call that cleans up after one step, and does not wait for it. One runs at a time,
  // and none beside or after ~StepCleanups; it may not come back into this object.
  using SendAlone = std::function<void(int64_t step_id)>;
  // Runs a task soon, on a thread that may start calls, which the reactor's may not. May be called
  // once more after ~StepCleanups, with a task that does nothing.
  using RunSoon = std::function<void(std::function<void()>)>;

  StepCleanups(SendAlone send_alone, RunSoon run_soon);
  // Sends alone what is still kept.
  ~StepCleanups();
  StepCleanups(const StepCleanups&) = delete;
  StepCleanups& operator=(const StepCleanups&) = delete;

  // Keeps `step_id` for the next request. False where the caller is to send it: the peer is not
  // known to understand, nothing can watch the time, or KeepNoMore() was called.
  bool Keep(int64_t step_id);

  // From now on the peer's steps may have ids that come again.
  void KeepNoMore();

  // What the request that is about to be sent takes along. Answered() follows.
  std::vector<int64_t> Take();

  // The request has ended: `understood` when it was answered, and the answer says that the peer
  // knows of cleanups. Otherwise `taken` may not have arrived and is sent alone.
  void Answered(const std::vector<int64_t>& taken, bool understood);

  // Sends alone what is kept: no step may follow.
  void Flush();

 private:
  struct State;
  static void SendKept(State* state);

  const RunSoon run_soon_;
  const std::shared_ptr<State> state_;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_STEP_CLEANUPS_H_
