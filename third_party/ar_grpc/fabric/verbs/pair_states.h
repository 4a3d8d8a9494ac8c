// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_PAIR_STATES_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_PAIR_STATES_H_

#include <cstdint>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"
#include "third_party/ar_grpc/fabric/verbs/frame.h"

// The states of a reliable connection's queue pair: made, initialized, ready to receive, ready to
// send, stopped.
namespace ar_grpc::fabric::verbs {

// From made to initialized.
Status Initialize(const Device& device, abi::QueuePair* pair);
// From initialized to ready to send, by `route` to the pair that the peer's Hello describes; ours
// sends packets from `first_psn` on. Waits for the kernel to find the peer's hardware address: up
// to a second where nobody has it.
Status ConnectTo(const Device& device, abi::QueuePair* pair, const Device::Port& port,
                 const Route& route, uint32_t first_psn, const Hello& peer);
// From any: it takes no more requests, and gives back its own as flushed.
Status Stop(const Device& device, abi::QueuePair* pair);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_PAIR_STATES_H_
