// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What is shm's alone: peers that lie, die, stop or are short of descriptors; forks; files. Exits 0
// when all of it holds. Peers in other processes are this program again, with a role.

#include "tests/conformance/shm_support.h"

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::testing;
  if (argc > 1) return RunRole(argv[1], argc > 2 ? argv[2] : "");
  size_t count = 0;
  // First, before this program has any thread.
  for (const auto& cases : {ShmUnthreadedCases(), ShmForgedCases(), ShmStallCases(), ShmWakeCases(),
                            ShmAnnouncedCases(), ShmOldPeerCases(), ShmKernelCases(),
                            ShmForkCases(), ShmProcessCases(), ShmLimitCases()}) {
    RunAll("shm", cases);
    count += cases.size();
  }
  std::printf("%zu cases over shm\n", count);
  return 0;
}
