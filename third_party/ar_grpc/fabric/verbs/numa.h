// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_NUMA_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_NUMA_H_

#include <string>

// NUMA nodes as sysfs tells them; kNoNode (device_choice.h) where it tells none. `sys` is where it
// is mounted.
namespace ar_grpc::fabric::verbs {

int NodeOfDevice(const std::string& device, const std::string& sys = "/sys");

// The node of most of the processors that this process may use.
int NodeOfMostProcessors(const std::string& sys = "/sys");

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_NUMA_H_
