// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/pair_states.h"

#include <algorithm>

#include "third_party/ar_grpc/fabric/verbs/address.h"
#include "third_party/ar_grpc/fabric/verbs/closed_in_child.h"

namespace ar_grpc::fabric::verbs {
namespace {

// Nothing here waits for a receive buffer, but a device may say "not ready" of a page.
constexpr uint8_t kRnrRetries = 6;
constexpr uint8_t kMinRnrTimer = 12;
constexpr uint8_t kHops = 64;

Status Modify(const Device& device, abi::QueuePair* pair, abi::QueuePairAttributes attributes,
              int set, const char* what) {
  const int error = device.library().modify_qp(pair, &attributes, set);
  if (error == 0) return Status();
  return DeviceStatus(error, "a queue pair of " + device.name() + " cannot be " + what);
}

}  // namespace

// Forks are held off in these two: some libraries map a page for the queue pair's doorbell in one
// of them. Between them the kernel may look for the peer's address, for long.

Status Initialize(const Device& device, abi::QueuePair* pair) {
  abi::QueuePairAttributes attributes = {};
  attributes.state = abi::kStateInit;
  attributes.port = device.port();
  attributes.pkey_index = device.settings().pkey_index;
  attributes.access = abi::kAccessRemoteRead | abi::kAccessRemoteWrite;
  const int set = abi::kSetState | abi::kSetPkeyIndex | abi::kSetPort | abi::kSetAccess;
  const std::unique_lock<std::mutex> no_fork = HoldOffForks();
  return Modify(device, pair, attributes, set, "initialized");
}

Status ConnectTo(const Device& device, abi::QueuePair* pair, const Device::Port& port,
                 const Route& route, uint32_t first_psn, const Hello& peer) {
  // Neither end asks for more READs at once than the other one serves.
  const uint8_t reads = std::min(device.limits().most_reads, peer.most_served_reads);
  const uint8_t served = std::min(device.limits().most_served_reads, peer.most_reads);
  if (reads == 0 || served == 0) {
    return Status(StatusCode::kUnavailable, "the peer's RDMA device does not do RDMA READ");
  }
  abi::QueuePairAttributes attributes = {};
  attributes.state = abi::kStateReadyToReceive;
  attributes.mtu = std::min(port.mtu, peer.mtu);
  attributes.peer = peer.number;
  attributes.receive_psn = peer.first_psn;
  attributes.max_served_reads = served;
  attributes.min_rnr_timer = kMinRnrTimer;
  attributes.address.port = device.port();
  attributes.address.lid = route.peer_lid;
  attributes.address.service_level = device.settings().service_level;
  if (port.address.link_layer == abi::kLinkLayerEthernet) {
    attributes.address.is_global = 1;
    attributes.address.gid = route.peer.gid;
    attributes.address.gid_index = route.own.index;
    attributes.address.hop_limit = kHops;
    attributes.address.traffic_class = device.settings().traffic_class;
  }
  int set = abi::kSetState | abi::kSetAddress | abi::kSetMtu | abi::kSetPeer | abi::kSetReceivePsn |
            abi::kSetMaxServedReads | abi::kSetMinRnrTimer;
  Status status = Modify(device, pair, attributes, set, "connected to the peer's");
  if (!status.ok()) return status;
  attributes.state = abi::kStateReadyToSend;
  attributes.send_psn = first_psn;
  attributes.timeout = device.settings().timeout;
  attributes.retries = device.settings().retries;
  attributes.rnr_retries = kRnrRetries;
  attributes.max_reads = reads;
  set = abi::kSetState | abi::kSetSendPsn | abi::kSetTimeout | abi::kSetRetries |
        abi::kSetRnrRetries | abi::kSetMaxReads;
  const std::unique_lock<std::mutex> no_fork = HoldOffForks();
  return Modify(device, pair, attributes, set, "made ready to send");
}

Status Stop(const Device& device, abi::QueuePair* pair) {
  abi::QueuePairAttributes attributes = {};
  attributes.state = abi::kStateError;
  return Modify(device, pair, attributes, abi::kSetState, "stopped");
}

}  // namespace ar_grpc::fabric::verbs
