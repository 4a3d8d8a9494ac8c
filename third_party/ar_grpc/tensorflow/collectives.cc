// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/collectives.h"

#include <cstdint>
#include <mutex>
#include <set>
#include <utility>

#include "tensorflow/core/common_runtime/base_collective_executor.h"
#include "tensorflow/core/distributed_runtime/collective_param_resolver_distributed.h"
#include "tensorflow/core/distributed_runtime/collective_rma_distributed.h"
#include "tensorflow/core/distributed_runtime/device_resolver_distributed.h"
#include "tensorflow/core/distributed_runtime/rpc_collective_executor_mgr.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/refcount.h"
#include "third_party/ar_grpc/protocol/write_gate.h"
#include "third_party/ar_grpc/tensorflow/collective_buffer.h"

namespace ar_grpc {
namespace {

using tensorflow::CancellationManager;
using tensorflow::Status;

// A call that receives for a collective. The step's cancellation manager cancels it through a
// manager of its own, which lives as long as the call. Thread-safe.
class Receive {
 public:
  // `step` may be nullptr.
  static std::shared_ptr<Receive> In(CancellationManager* step) {
    auto receive = std::make_shared<Receive>();
    if (step == nullptr) return receive;
    receive->token_ = step->get_cancellation_token();
    // Before the step knows of it, which may leave the step at once.
    receive->step_ = step;
    if (!step->RegisterCallback(receive->token_, [receive] { receive->Cancel(); })) {
      receive->LeaveStep();
      receive->Cancel();
    }
    return receive;
  }

  CancellationManager* own() { return &own_; }
  const std::shared_ptr<protocol::WriteGate>& gate() const { return gate_; }

  void Cancel() {
    gate_->Close();
    own_.StartCancel();
  }

  // When it returns the step's manager is not used any more. Does not wait for a cancellation that
  // is under way, as it may be called by one.
  void LeaveStep() {
    std::lock_guard<std::mutex> lock(mu_);
    if (step_ != nullptr) step_->TryDeregisterCallback(token_);
    step_ = nullptr;
  }

 private:
  // What holds whatever becomes of the call: once it is closed nothing of ours writes to the
  // buffer.
  const std::shared_ptr<protocol::WriteGate> gate_ = std::make_shared<protocol::WriteGate>();
  CancellationManager own_;
  tensorflow::CancellationToken token_ = CancellationManager::kInvalidToken;
  std::mutex mu_;
  CancellationManager* step_ = nullptr;  // guarded by mu_
};

class RemoteAccess final : public tensorflow::CollectiveRemoteAccessDistributed {
 public:
  using CollectiveRemoteAccessDistributed::CollectiveRemoteAccessDistributed;

  // The executor that owns this; before anything else.
  void SetExecutor(tensorflow::CollectiveExecutor* executor) { executor_ = executor; }

  void RecvFromPeer(const std::string& peer_device, const std::string& peer_task,
                    bool peer_is_local, const std::string& key, tensorflow::Device* to_device,
                    tensorflow::DeviceContext* to_device_ctx,
                    const tensorflow::AllocatorAttributes& to_alloc_attr,
                    tensorflow::Tensor* to_tensor,
                    const tensorflow::DeviceLocality& client_locality, int dev_to_dev_stream_index,
                    CancellationManager* cancellation_manager,
                    const tensorflow::StatusCallback& done) override {
    // Its callbacks refer to this, which the executor owns.
    executor_->Ref();
    std::shared_ptr<Receive> receive;
    {
      std::lock_guard<std::mutex> lock(mu_);
      // After an abort the step may be freed, with its cancellation manager and `to_tensor`.
      if (!aborted_) {
        receive = Receive::In(cancellation_manager);
        receives_.insert(receive);
      }
    }
    if (receive == nullptr) {
      done(tensorflow::errors::Cancelled("collective ops already aborted"));
      executor_->Unref();
      return;
    }
    const ScopedBufferGate scope(receive->gate());
    CollectiveRemoteAccessDistributed::RecvFromPeer(
        peer_device, peer_task, peer_is_local, key, to_device, to_device_ctx, to_alloc_attr,
        to_tensor, client_locality, dev_to_dev_stream_index, receive->own(),
        [this, receive, done](const Status& status) {
          receive->LeaveStep();
          {
            std::lock_guard<std::mutex> lock(mu_);
            receives_.erase(receive);
          }
          done(status);
          executor_->Unref();
        });
  }

  // Cancels all receives and parts them from the step's cancellation manager. That, and the memory
  // that they receive into from other processes, may be freed after this. TensorFlow's own copies
  // within this process, from a peer of it or to a device, are not waited for.
  void StartAbort(const Status& status) override {
    std::set<std::shared_ptr<Receive>> receives;
    {
      std::lock_guard<std::mutex> lock(mu_);
      aborted_ = true;
      receives = receives_;
    }
    // Before the calls' cancel, which a call that has just begun does not hear: such a one looks at
    // its gate afterwards.
    for (const std::shared_ptr<Receive>& receive : receives) receive->gate()->Close();
    CollectiveRemoteAccessDistributed::StartAbort(status);
    for (const std::shared_ptr<Receive>& receive : receives) receive->LeaveStep();
  }

 private:
  tensorflow::CollectiveExecutor* executor_ = nullptr;
  std::mutex mu_;
  bool aborted_ = false;                         // guarded by mu_
  std::set<std::shared_ptr<Receive>> receives_;  // guarded by mu_
};

class Executor final : public tensorflow::BaseCollectiveExecutor {
 public:
  using BaseCollectiveExecutor::BaseCollectiveExecutor;

  // A collective ends after this, so it must not return before another thread's abort has taken
  // effect. Recursive: what is aborted may abort, too, and may end the step.
  void StartAbort(const Status& status) override {
    Ref();
    const tensorflow::core::ScopedUnref unref(this);
    std::lock_guard<std::recursive_mutex> lock(abort_mu_);
    BaseCollectiveExecutor::StartAbort(status);
  }

 private:
  std::recursive_mutex abort_mu_;
};

class ExecutorMgr final : public tensorflow::RpcCollectiveExecutorMgr {
 public:
  using RpcCollectiveExecutorMgr::RpcCollectiveExecutorMgr;

 protected:
  tensorflow::CollectiveExecutor* Create(int64_t step_id) override {
    auto access = std::make_unique<RemoteAccess>(dev_mgr_, dev_resolver_.get(), work_queue_,
                                                 worker_cache_, step_id, task_name_);
    RemoteAccess* const owned = access.get();
    auto executor =
        std::make_unique<Executor>(this, access.release(), step_id, dev_mgr_, work_queue_);
    owned->SetExecutor(executor.get());
    return executor.release();
  }
};

}  // namespace

std::unique_ptr<tensorflow::CollectiveExecutorMgrInterface> CreateCollectiveExecutorMgr(
    const tensorflow::ConfigProto& config, const tensorflow::DeviceMgr* device_mgr,
    std::unique_ptr<tensorflow::NcclCommunicatorInterface> nccl_communicator,
    tensorflow::WorkerCacheInterface* worker_cache, const std::string& task_name) {
  auto devices = std::make_unique<tensorflow::DeviceResolverDistributed>(device_mgr);
  auto params = std::make_unique<tensorflow::CollectiveParamResolverDistributed>(
      config, device_mgr, devices.get(), nccl_communicator.get(), worker_cache, task_name);
  return std::make_unique<ExecutorMgr>(config, device_mgr, std::move(devices), std::move(params),
                                       std::move(nccl_communicator), worker_cache, task_name);
}

}  // namespace ar_grpc
