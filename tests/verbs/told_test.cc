// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What a device is told of the settings that no traffic over Soft-RoCE shows: service level,
// traffic class, partition key, timeout and retries of each queue pair.

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "tests/verbs/library_to_wrap.h"
#include "tests/verbs/own_pair.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr int kPartition = 2;  // Soft-RoCE has the one at 0 alone

Library real;
std::mutex mu;
std::vector<abi::QueuePairAttributes> told;  // guarded by mu, in the order in which they were told

int ModifyPair(abi::QueuePair* pair, abi::QueuePairAttributes* attributes, int set) {
  {
    std::lock_guard<std::mutex> lock(mu);
    told.push_back(*attributes);
  }
  abi::QueuePairAttributes its = *attributes;
  its.pkey_index = 0;
  return real.modify_qp(pair, &its, set);
}

int QueryPort(abi::Context* context, uint8_t port, abi::PortAttributes* attributes) {
  const int error = real.query_port(context, port, attributes);
  attributes->pkey_count = kPartition + 1;
  return error;
}

int QueryPartition(abi::Context* context, uint8_t port, int, uint16_t* key) {
  return real.query_pkey(context, port, 0, key);
}

void ConnectsAsItIsTold() {
  const Pair pair = Connected();
  int made = 0;
  int connected = 0;
  int ready = 0;
  std::lock_guard<std::mutex> lock(mu);
  for (const abi::QueuePairAttributes& each : told) {
    if (each.state == abi::kStateInit) {
      ++made;
      Check(each.pkey_index == kPartition, "partition key");
    } else if (each.state == abi::kStateReadyToReceive) {
      ++connected;
      Check(each.address.service_level == 5, "service level");
      Check(each.address.traffic_class == 106, "traffic class");
    } else if (each.state == abi::kStateReadyToSend) {
      ++ready;
      Check(each.timeout == 15 && each.retries == 5, "timeout and retries");
      Check(each.rnr_retries > 0 && each.rnr_retries < 7, "7 would retry for ever");
    }
  }
  Check(made == 2 && connected == 2 && ready == 2, "each end, once");
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  setenv("RDMA_QP_SL", "5", 1);
  setenv("RDMA_TRAFFIC_CLASS", "106", 1);
  setenv("RDMA_QP_PKEY_INDEX", "2", 1);
  setenv("RDMA_QP_TIMEOUT", "15", 1);
  setenv("RDMA_QP_RETRY_COUNT", "5", 1);
  auto* const library = LibraryToWrap();
  real = *library;
  library->modify_qp = ModifyPair;
  library->query_port = QueryPort;
  library->query_pkey = QueryPartition;
  ConnectsAsItIsTold();
  std::printf("ok told\n");
}
