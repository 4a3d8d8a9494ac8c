// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/poller.h"

#include <poll.h>

#include <string_view>

#include "src/core/lib/iomgr/ev_posix.h"
#include "third_party/ar_grpc/grpc/spin.h"

namespace ar_grpc {
namespace {

int Poll(pollfd* fds, nfds_t count, int timeout_ms) {
  if (timeout_ms != 0) protocol::ReleaseBatch::PostAll();
  return SpinAndPoll(fds, count, timeout_ms);
}

}  // namespace

void InstallPoller() { grpc_poll_function = Poll; }

BatchedReleases::BatchedReleases() {
  if (grpc_get_poll_strategy_name() == std::string_view("poll")) batch_.emplace();
}

}  // namespace ar_grpc
