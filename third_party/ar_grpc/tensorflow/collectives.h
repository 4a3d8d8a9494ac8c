// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_COLLECTIVES_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_COLLECTIVES_H_

#include <memory>
#include <string>

#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/distributed_runtime/worker_cache.h"
#include "tensorflow/core/framework/collective.h"
#include "tensorflow/core/protobuf/config.pb.h"

namespace ar_grpc {

// As TensorFlow's CreateProdRpcCollectiveExecutorMgr, but a collective may end before the calls
// that receive for it do. One whose time is up does (BaseCollectiveExecutor::ExecuteAsync);
// TensorFlow's own call then refers to the step's cancellation manager (CancellableCall) and to the
// step's executor (CollectiveRemoteAccessDistributed), and the step has freed both.
std::unique_ptr<tensorflow::CollectiveExecutorMgrInterface> CreateCollectiveExecutorMgr(
    const tensorflow::ConfigProto& config, const tensorflow::DeviceMgr* device_mgr,
    std::unique_ptr<tensorflow::NcclCommunicatorInterface> nccl_communicator,
    tensorflow::WorkerCacheInterface* worker_cache, const std::string& task_name);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_COLLECTIVES_H_
