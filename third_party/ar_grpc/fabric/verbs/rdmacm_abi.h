// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_RDMACM_ABI_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_RDMACM_ABI_H_

#include <cstdint>

#include "third_party/ar_grpc/fabric/verbs/abi.h"

// What is used of librdmacm's binary interface: layouts and numbers of its symbol version 1.0, as
// abi.h has those of libibverbs. tests/verbs/rdmacm_abi_test.cc holds all of this against the
// header. Of what the library makes only the leading members are declared.
namespace ar_grpc::fabric::verbs::abi {

struct EventChannel {
  int fd;
};

// What the header calls an identifier: a listener, or one end of a connection.
struct ConnectionId {
  Context* verbs;
  EventChannel* channel;
  void* user;
  QueuePair* pair;
};

inline constexpr int kPortSpaceTcp = 0x0106;

struct ConnectionParameters {
  const void* private_data;
  uint8_t private_data_bytes;
  uint8_t responder_resources;
  uint8_t initiator_depth;
  uint8_t flow_control;
  uint8_t retries;
  uint8_t rnr_retries;
  uint8_t shared_receive_queue;
  uint32_t pair_number;
};

inline constexpr int kAddressResolved = 0;
inline constexpr int kRouteResolved = 2;
inline constexpr int kConnectRequest = 4;
inline constexpr int kEstablished = 9;
inline constexpr int kDisconnected = 10;
inline constexpr int kDeviceRemoval = 11;

struct ConnectionEvent {
  ConnectionId* id;
  ConnectionId* listener;
  int type;
  int status;
  ConnectionParameters parameters;
};

}  // namespace ar_grpc::fabric::verbs::abi

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_RDMACM_ABI_H_
