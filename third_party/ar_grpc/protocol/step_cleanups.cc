// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/step_cleanups.h"

#include <mutex>
#include <utility>

#include "third_party/ar_grpc/base/reactor.h"

namespace ar_grpc::protocol {

struct StepCleanups::State {
  explicit State(SendAlone send) : send_alone(std::move(send)) {}

  // Held while calls are started. Taken before mu, which no step has to wait for then.
  std::mutex sending;
  const SendAlone send_alone;  // called under `sending`

  std::mutex mu;
  // All guarded by mu.
  std::vector<int64_t> kept;
  bool understood = false;  // by the peer, as its last answer says
  bool watched = false;     // a timer will send what is still kept then
  bool no_more = false;
};

StepCleanups::StepCleanups(SendAlone send_alone, RunSoon run_soon)
    : run_soon_(std::move(run_soon)), state_(std::make_shared<State>(std::move(send_alone))) {}

StepCleanups::~StepCleanups() { Flush(); }

bool StepCleanups::Keep(int64_t step_id) {
  std::lock_guard<std::mutex> lock(state_->mu);
  if (!state_->understood || state_->no_more) return false;
  if (!state_->watched) {
    const auto send_kept = [state = std::weak_ptr<State>(state_)] {
      const std::shared_ptr<State> alive = state.lock();
      if (alive == nullptr) return;
      {
        std::lock_guard<std::mutex> lock(alive->mu);
        alive->watched = false;
      }
      SendKept(alive.get());
    };
    state_->watched = Reactor::Get().RunAfter(kPatienceMs, [run_soon = run_soon_, send_kept] {
      run_soon(send_kept);
    }) != 0;
  }
  if (!state_->watched) return false;
  state_->kept.push_back(step_id);
  return true;
}

void StepCleanups::KeepNoMore() {
  std::lock_guard<std::mutex> lock(state_->mu);
  state_->no_more = true;
}

std::vector<int64_t> StepCleanups::Take() {
  std::lock_guard<std::mutex> lock(state_->mu);
  return std::exchange(state_->kept, {});
}

void StepCleanups::Answered(const std::vector<int64_t>& taken, bool understood) {
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    state_->understood = understood;
  }
  if (understood || taken.empty()) return;
  std::lock_guard<std::mutex> sending(state_->sending);
  for (const int64_t step_id : taken) state_->send_alone(step_id);
}

void StepCleanups::Flush() { SendKept(state_.get()); }

void StepCleanups::SendKept(State* state) {
  std::lock_guard<std::mutex> sending(state->sending);
  std::vector<int64_t> kept;
  {
    std::lock_guard<std::mutex> lock(state->mu);
    kept.swap(state->kept);
  }
  for (const int64_t step_id : kept) state->send_alone(step_id);
}

}  // namespace ar_grpc::protocol
