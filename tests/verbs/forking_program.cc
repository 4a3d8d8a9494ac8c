// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A process with two connected ends and registered memory that forks a child and dies, by SIGKILL:
// it prints the child's number, and the child lives until it is ended.

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "tests/verbs/own_pair.h"

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  const Memory memory(size_t{1} << 20);
  const Pair pair = Connected();
  const auto key = Value(pair.owner->Export(memory.registration));
  std::vector<uint8_t> into(size_t{1} << 20);
  CheckCode(GetNow(*pair.reader, key, 0, into.data(), into.size()), ar_grpc::StatusCode::kOk);
  const pid_t child = fork();
  if (child == 0) {
    for (;;) pause();
  }
  std::printf("%d\n", static_cast<int>(child));
  std::fflush(stdout);
  kill(getpid(), SIGKILL);
}
