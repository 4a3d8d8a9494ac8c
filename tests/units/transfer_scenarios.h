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

inline constexpr uint64_t kSizes[] = {1,      4095,    4096,    262143,  262144,
                                      262145, 1000003, 4 << 20, 9000001, (16 << 20) + 7};

// One transfer of `size` bytes; its outcome. Where it is OK, the bytes are the right ones. The
// source lies in a segment or elsewhere; `kept` is what Destination takes.
Status Move(World* world, uint64_t size, uint64_t seed, bool in_segment, bool kept,
            RunInPool run_in_pool = nullptr);

struct Ended {
  Counters received, sent;
};

// Transfers of each of kSizes from a segment and from elsewhere, to a kept place and to another, by
// the caller's thread alone and with a pool: 8 ways, each of which must be OK.
Ended RightBytesInAllWays(const World::MakeContext& make);
// The same, over a fabric that fails in none: each byte is read, and half of them are staged.
void AllByReads(const World::MakeContext& make);

// After Cancel, or once the owner has closed the gate that he gave, the memory is his: what he
// writes there stays, whatever is under way. Under the thread sanitizer a write beside his is a
// race. With `cut_link` the link ends meanwhile, now and then.
void AmidTheRead(const World::MakeContext& make, bool cut_link);

// 100 transfers from 4 threads, some of them cancelled, while links come and go.
void ManyAtOnce(const World::MakeContext& make);

}  // namespace ar_grpc::protocol::testing

#endif  // TESTS_UNITS_TRANSFER_SCENARIOS_H_
