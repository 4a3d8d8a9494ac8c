// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_IN_PROCESS_MASTER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_IN_PROCESS_MASTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tensorflow/core/distributed_runtime/local_master.h"
#include "tensorflow/core/distributed_runtime/master.h"
#include "tensorflow/core/distributed_runtime/master_interface.h"

namespace ar_grpc {

// The master of a server in the client's own process. A step runs on the thread that asks for it
// and would only wait: stock's `LocalMaster` starts a thread for each step. A step's time limit is
// watched by the reactor.
class InProcessMaster final : public tensorflow::MasterInterface {
 public:
  // Makes `master`, which is not owned and lives as long as the process, known as `target`
  // ("grpc://host:port"), here and as stock's `LocalMaster`, unless another is already.
  // `timeout_in_ms` is the limit of calls that set none; 0 is no limit.
  static void Register(const std::string& target, tensorflow::Master* master,
                       int64_t timeout_in_ms);

  // Whether a master is registered as `target`.
  static bool Has(const std::string& target);

  // A new handle on the master registered as `target`, or null.
  static std::unique_ptr<tensorflow::MasterInterface> Lookup(const std::string& target);

  tensorflow::Status CreateSession(tensorflow::CallOptions* options,
                                   const tensorflow::CreateSessionRequest* request,
                                   tensorflow::CreateSessionResponse* response) override {
    return stock_->CreateSession(options, request, response);
  }
  tensorflow::Status ExtendSession(tensorflow::CallOptions* options,
                                   const tensorflow::ExtendSessionRequest* request,
                                   tensorflow::ExtendSessionResponse* response) override {
    return stock_->ExtendSession(options, request, response);
  }
  tensorflow::Status PartialRunSetup(tensorflow::CallOptions* options,
                                     const tensorflow::PartialRunSetupRequest* request,
                                     tensorflow::PartialRunSetupResponse* response) override {
    return stock_->PartialRunSetup(options, request, response);
  }
  tensorflow::Status CloseSession(tensorflow::CallOptions* options,
                                  const tensorflow::CloseSessionRequest* request,
                                  tensorflow::CloseSessionResponse* response) override {
    return stock_->CloseSession(options, request, response);
  }
  tensorflow::Status ListDevices(tensorflow::CallOptions* options,
                                 const tensorflow::ListDevicesRequest* request,
                                 tensorflow::ListDevicesResponse* response) override {
    return stock_->ListDevices(options, request, response);
  }
  tensorflow::Status Reset(tensorflow::CallOptions* options,
                           const tensorflow::ResetRequest* request,
                           tensorflow::ResetResponse* response) override {
    return stock_->Reset(options, request, response);
  }
  tensorflow::Status MakeCallable(tensorflow::CallOptions* options,
                                  const tensorflow::MakeCallableRequest* request,
                                  tensorflow::MakeCallableResponse* response) override {
    return stock_->MakeCallable(options, request, response);
  }
  tensorflow::Status ReleaseCallable(tensorflow::CallOptions* options,
                                     const tensorflow::ReleaseCallableRequest* request,
                                     tensorflow::ReleaseCallableResponse* response) override {
    return stock_->ReleaseCallable(options, request, response);
  }
  tensorflow::MutableRunStepRequestWrapper* CreateRunStepRequest() override {
    return stock_->CreateRunStepRequest();
  }
  tensorflow::MutableRunStepResponseWrapper* CreateRunStepResponse() override {
    return stock_->CreateRunStepResponse();
  }

  // Both: Aborted if the master does not know the session, DeadlineExceeded after the call's limit,
  // else the step's own status. An exception ends the process, as in stock's thread: the callbacks
  // of a step that is under way refer to this stack.
  tensorflow::Status RunStep(tensorflow::CallOptions* options,
                             tensorflow::RunStepRequestWrapper* request,
                             tensorflow::MutableRunStepResponseWrapper* response) noexcept override;
  tensorflow::Status RunCallable(tensorflow::CallOptions* options,
                                 const tensorflow::RunCallableRequest* request,
                                 tensorflow::RunCallableResponse* response) noexcept override;

 private:
  InProcessMaster(tensorflow::Master* master, int64_t timeout_in_ms,
                  std::unique_ptr<tensorflow::LocalMaster> stock)
      : master_(master), timeout_in_ms_(timeout_in_ms), stock_(std::move(stock)) {}

  // `step` on the session of this handle; `stock_step` where no time limit can be watched.
  template <typename Step, typename StockStep>
  tensorflow::Status Run(tensorflow::CallOptions* options, const std::string& handle, Step step,
                         StockStep stock_step);

  tensorflow::Master* const master_;
  const int64_t timeout_in_ms_;
  const std::unique_ptr<tensorflow::LocalMaster> stock_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_IN_PROCESS_MASTER_H_
