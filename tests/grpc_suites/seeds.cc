// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/seeds.h"

#include <cstdint>
#include <cstdio>
#include <random>
#include <set>

#include "src/core/ext/filters/fault_injection/fault_injection_filter.h"
#include "src/core/lib/channel/channel_args.h"
#include "src/core/lib/channel/channel_stack.h"
#include "src/core/lib/channel/promise_based_filter.h"
#include "tests/conformance/testing.h"

namespace ar_grpc::testing {
namespace {

using fabric::testing::Check;
using grpc_core::FaultInjectionFilter;

// Its generators are private; access is not checked in an explicit instantiation ([temp.spec]/6).
auto& AbortGenerator(FaultInjectionFilter& filter);
auto& DelayGenerator(FaultInjectionFilter& filter);

template <auto kAbort, auto kDelay>
struct Members {
  friend auto& AbortGenerator(FaultInjectionFilter& filter) { return filter.*kAbort; }
  friend auto& DelayGenerator(FaultInjectionFilter& filter) { return filter.*kDelay; }
};

template struct Members<&FaultInjectionFilter::abort_rand_generator_,
                        &FaultInjectionFilter::delay_rand_generator_>;

// Which calls fail, and which wait, must not be the same ones in each channel and process.
void FaultsAreDrawnAnewInEachChannel() {
  constexpr int kChannels = 8;
  // What a generator without a seed gives first.
  std::set<uint64_t> drawn = {std::mt19937_64()()};
  grpc_channel_stack stack{};
  for (int i = 0; i < kChannels; ++i) {
    auto filter = FaultInjectionFilter::Create(
        grpc_core::ChannelArgs(),
        grpc_core::ChannelFilter::Args(&stack, /*channel_element=*/nullptr));
    Check(filter.ok(), "a filter");
    drawn.insert(AbortGenerator(*filter)());
    drawn.insert(DelayGenerator(*filter)());
  }
  Check(drawn.size() == 1 + 2 * kChannels, "all differ: " + std::to_string(drawn.size()));
}

}  // namespace

bool RunSeedsCase(const std::string& name) {
  if (name != "seeds") return false;
  FaultsAreDrawnAnewInEachChannel();
  std::printf("ok seeds\n");
  return true;
}

}  // namespace ar_grpc::testing
