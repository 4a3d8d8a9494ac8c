// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/logging.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/protocol/measure.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"

namespace ar_grpc {
namespace {

void ToTensorFlowLog(Severity severity, const std::string& line) {
  switch (severity) {
    case Severity::kInfo:
      LOG(INFO) << "AR-gRPC: " << line;
      return;
    case Severity::kWarning:
      LOG(WARNING) << "AR-gRPC: " << line;
      return;
    case Severity::kError:
      LOG(ERROR) << "AR-gRPC: " << line;
      return;
  }
}

StatusOr<std::vector<std::string>> Allowed() {
  return fabric::ParseFabrics(std::getenv("AR_GRPC_FABRICS"));
}

}  // namespace

tensorflow::Status PrepareClient() {
  SetLogSink(ToTensorFlowLog);
  const auto allowed = Allowed();
  if (!allowed.ok()) return tensorflow::errors::InvalidArgument(allowed.status().message());
  return tensorflow::OkStatus();
}

tensorflow::Status PrepareServer() {
  TF_RETURN_IF_ERROR(PrepareClient());
  static std::once_flag once;
  std::call_once(once, [] {
    const std::vector<std::string> allowed = *Allowed();
    if (std::find(allowed.begin(), allowed.end(), "shm") == allowed.end()) return;
    fabric::Context* const shm = fabric::Find("shm");
    const Status available = shm->Available();
    if (!available.ok()) {
      LOG(WARNING) << "AR-gRPC: no shared memory: " << available.message();
      return;
    }
    // It logs by itself why it could not, and tensors then travel through the stream.
    (void)CpuArena::Activate(shm).ok();
    // Now, not in the first step.
    protocol::MeasuredSharedMemory();
  });
  return tensorflow::OkStatus();
}

}  // namespace ar_grpc
