// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// gRPC's own endpoint tests, and ours of what they leave out, over two AR endpoints:
//
//   ar_endpoint_test FABRIC upstream
//   ar_endpoint_test FABRIC CASE
//
// FABRIC is one of ends.h, CASE one of contract.h or drained.h or that of seeds.h or
// queue_timer_cases.h or shared_connection.h, or with shm that of switch.h.

#include <grpc/grpc.h>

#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>

#include "src/core/lib/iomgr/exec_ctx.h"
#include "test/core/iomgr/endpoint_tests.h"
#include "test/core/util/test_config.h"
#include "tests/grpc_suites/contract.h"
#include "tests/grpc_suites/drained.h"
#include "tests/grpc_suites/ends.h"
#include "tests/grpc_suites/queue_timer_cases.h"
#include "tests/grpc_suites/seeds.h"
#include "tests/grpc_suites/shared_connection.h"
#include "tests/grpc_suites/switch.h"

namespace ar_grpc::testing {
namespace {

std::string* fabric_name;

grpc_endpoint_test_fixture CreateFixture(size_t slice_size) {
  grpc_core::ExecCtx exec_ctx;
  const std::filesystem::directory_iterator open("/proc/self/fd");
  std::printf("descriptors=%td\n", std::distance(begin(open), end(open)));
  const Ends ends = NewEnds(*fabric_name, Arguments(slice_size));
  return {ends.client, ends.server};
}

bool Run(const std::string& fabric, const std::string& name) {
  if (!IsFabric(fabric)) return false;
  if (RunSwitchCase(fabric, name) || RunSeedsCase(name)) return true;
  if (RunDrainedCase(name) || RunQueueTimerCase(name)) return true;
  if (RunSharedConnectionCase(name)) return true;
  grpc_core::ExecCtx exec_ctx;
  Pollset pollset;
  if (name != "upstream") return RunContractCase(fabric, name);
  fabric_name = new std::string(fabric);
  grpc_endpoint_tests({fabric_name->c_str(), CreateFixture, [] {}}, Pollset::get(), Pollset::mu());
  return true;
}

}  // namespace
}  // namespace ar_grpc::testing

int main(int argc, char** argv) {
  grpc::testing::TestEnvironment environment(&argc, argv);
  grpc_init();
  const bool known = argc == 3 && ar_grpc::testing::Run(argv[1], argv[2]);
  grpc_shutdown();
  if (!known) {
    std::fputs("usage: ar_endpoint_test FABRIC upstream|CASE\n", stderr);
    return 2;
  }
  const ar_grpc::protocol::Counters counters = ar_grpc::testing::TestNode()->Count();
  std::printf("sent=%ju received=%ju links=%ju\n", uintmax_t{counters.stream_bytes_sent},
              uintmax_t{counters.stream_bytes_received}, uintmax_t{counters.links});
  return 0;
}
