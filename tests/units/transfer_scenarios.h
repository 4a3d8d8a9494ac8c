// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_UNITS_TRANSFER_SCENARIOS_H_
#define TESTS_UNITS_TRANSFER_SCENARIOS_H_

#include <cstdint>

#include "tests/units/transfer_testing.h"

// What happens to transfers over any fabric that reads memory.
namespace ar_grpc::protocol::testing {

// So many that the pool copies.
inline constexpr uint64_t kBytes = uint64_t{6} << 20;

// The sender has let go what it offered, once.
void ExpectLetGo(World* world, const Source& source);

// After Cancel, or once the owner has closed the gate that he gave, the memory is his: what he
// writes there stays, whatever is under way. Under the thread sanitizer a write beside his is a
// race. With `cut_link` the link ends meanwhile, now and then.
void AmidTheRead(const World::MakeContext& make, bool cut_link);

// 100 transfers from 4 threads, some of them cancelled, while links come and go.
void ManyAtOnce(const World::MakeContext& make);

}  // namespace ar_grpc::protocol::testing

#endif  // TESTS_UNITS_TRANSFER_SCENARIOS_H_
