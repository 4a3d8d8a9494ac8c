// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/in_process_master.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/memory/memory.h"
#include "tensorflow/core/distributed_runtime/master_session.h"
#include "tensorflow/core/lib/core/errors.h"
#include "tensorflow/core/lib/core/refcount.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/tensorflow/run_later.h"

namespace ar_grpc {
namespace {

struct Registered {
  tensorflow::Master* master;
  int64_t timeout_in_ms;
};

class Registry {
 public:
  // Never destroyed: servers live as long as the process, and threads may outlive its statics.
  static Registry& Get() {
    static Registry* const registry = new Registry;
    return *registry;
  }

  void Add(const std::string& target, Registered registered) {
    const std::lock_guard<std::mutex> lock(mutex_);
    masters_.emplace(target, registered);
  }

  std::optional<Registered> Find(const std::string& target) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = masters_.find(target);
    if (found == masters_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, Registered> masters_;
};

// Cancels what `options` belongs to when it takes longer than its limit.
class Limit {
 public:
  // `limit_ms` is 0 or less for none.
  Limit(tensorflow::CallOptions* options, int64_t limit_ms) {
    if (limit_ms <= 0) return;
    call_ = std::make_shared<Call>();
    call_->options = options;
    const int delay = static_cast<int>(std::min<int64_t>(limit_ms, 1 << 30));
    timer_ = Reactor::Get().RunAfter(delay, [call = call_] {
      // Not in the reactor: what a step does when it is cancelled may block.
      RunLater([call] {
        const std::lock_guard<std::mutex> lock(call->mutex);
        if (call->options == nullptr) return;
        call->expired = true;
        call->options->StartCancel();
      });
    });
  }

  // False where there is no thread to watch the time.
  bool watched() const { return call_ == nullptr || timer_ != 0; }

  // The call has ended; whether it was cancelled.
  bool Finish() {
    if (call_ == nullptr) return false;
    Reactor::Get().Cancel(timer_);
    const std::lock_guard<std::mutex> lock(call_->mutex);
    call_->options = nullptr;
    return call_->expired;
  }

 private:
  struct Call {
    std::mutex mutex;
    tensorflow::CallOptions* options;  // null once the call has ended
    bool expired = false;
  };

  std::shared_ptr<Call> call_;
  uint64_t timer_ = 0;
};

}  // namespace

void InProcessMaster::Register(const std::string& target, tensorflow::Master* master,
                               int64_t timeout_in_ms) {
  // Of several (TF_GRPC_REUSE_PORT) the first stays, as in stock, whatever protocol it is of.
  if (tensorflow::LocalMaster::Lookup(target) != nullptr) return;
  tensorflow::LocalMaster::Register(target, master, timeout_in_ms);
  Registry::Get().Add(target, {master, timeout_in_ms});
}

bool InProcessMaster::Has(const std::string& target) {
  return Registry::Get().Find(target).has_value();
}

std::unique_ptr<tensorflow::MasterInterface> InProcessMaster::Lookup(const std::string& target) {
  const std::optional<Registered> found = Registry::Get().Find(target);
  if (!found.has_value()) return nullptr;
  return absl::WrapUnique(new InProcessMaster(found->master, found->timeout_in_ms,
                                              tensorflow::LocalMaster::Lookup(target)));
}

// Codes and words of the errors are the stock master's: MonitoredSession starts anew on Aborted.
template <typename Step, typename StockStep>
tensorflow::Status InProcessMaster::Run(tensorflow::CallOptions* options, const std::string& handle,
                                        Step step, StockStep stock_step) {
  const int64_t own_limit = options->GetTimeout();
  Limit limit(options, own_limit != 0 ? own_limit : timeout_in_ms_);
  if (!limit.watched()) return stock_step();
  const tensorflow::core::RefCountPtr<tensorflow::MasterSession> session(
      master_->FindMasterSession(handle));
  tensorflow::Status status =
      session == nullptr ? tensorflow::errors::Aborted("Session ", handle, " is not found.")
                         : step(session.get());
  if (limit.Finish()) return tensorflow::errors::DeadlineExceeded("Operation timed out.");
  return status;
}

tensorflow::Status InProcessMaster::RunStep(
    tensorflow::CallOptions* options, tensorflow::RunStepRequestWrapper* request,
    tensorflow::MutableRunStepResponseWrapper* response) noexcept {
  return Run(
      options, request->session_handle(),
      [&](tensorflow::MasterSession* session) { return session->Run(options, *request, response); },
      [&] { return stock_->RunStep(options, request, response); });
}

tensorflow::Status InProcessMaster::RunCallable(
    tensorflow::CallOptions* options, const tensorflow::RunCallableRequest* request,
    tensorflow::RunCallableResponse* response) noexcept {
  return Run(
      options, request->session_handle(),
      [&](tensorflow::MasterSession* session) {
        return session->RunCallable(options, *request, response);
      },
      [&] { return stock_->RunCallable(options, request, response); });
}

}  // namespace ar_grpc

// Whether a `grpc+ar` server of this process serves `target` ("grpc://host:port").
extern "C" __attribute__((visibility("default"))) bool ar_grpc_has_master(const char* target) {
  return ar_grpc::InProcessMaster::Has(target);
}
