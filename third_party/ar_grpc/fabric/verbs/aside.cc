// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/aside.h"

#include <utility>

#include "third_party/ar_grpc/base/thread.h"

namespace ar_grpc::fabric::verbs {

Status RunAside(std::function<void()> task) {
  StatusOr<Thread> thread = StartThread("ar-grpc connect", std::move(task));
  if (thread.ok()) thread->Detach();
  return thread.status();
}

}  // namespace ar_grpc::fabric::verbs
