// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/run_later.h"

#include <utility>

#include "third_party/ar_grpc/base/work_queue.h"

namespace ar_grpc {

void RunLater(std::function<void()> task) {
  // Never destroyed: tasks come until the process ends. Several threads, as a task may block.
  static auto* const queue = new WorkQueue("ar-grpc later", /*most_threads=*/4);
  queue->Run(std::move(task));
}

}  // namespace ar_grpc
