// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_BASE_LIMITS_H_
#define THIRD_PARTY_AR_GRPC_BASE_LIMITS_H_

#include <cstdint>
#include <string>

// What this process may use of the machine: the kernel says what there is, control groups (versions
// 1 and 2, as in a container) what of it is for us. Both functions look anew at each call.
namespace ar_grpc {

// Cores, at least 1: those of the affinity mask, and no more than the quota of any group that the
// process is in, rounded up.
int UsableCores();

// Bytes of memory: the machine's, and no more than the limit of any group that the process is in.
uint64_t UsableMemory();

// For tests: the same from a tree like /sys/fs/cgroup below `root` and a text like
// /proc/self/cgroup. Without a limit: 0 cores, UINT64_MAX bytes.
int CoresOfGroups(const std::string& root, const std::string& groups);
uint64_t MemoryOfGroups(const std::string& root, const std::string& groups);

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_BASE_LIMITS_H_
