// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_RDMACM_LIBRARY_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_RDMACM_LIBRARY_H_

#include <sys/socket.h>

#include <cstdint>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/rdmacm_abi.h"

namespace ar_grpc::fabric::verbs {

// librdmacm's functions, by their names there.
struct RdmacmLibrary {
  abi::EventChannel* (*create_event_channel)();
  void (*destroy_event_channel)(abi::EventChannel* channel);
  int (*create_id)(abi::EventChannel* channel, abi::ConnectionId** id, void* user, int space);
  int (*destroy_id)(abi::ConnectionId* id);
  int (*bind_addr)(abi::ConnectionId* id, sockaddr* address);
  int (*resolve_addr)(abi::ConnectionId* id, sockaddr* own, sockaddr* peer, int timeout_ms);
  int (*resolve_route)(abi::ConnectionId* id, int timeout_ms);
  int (*connect)(abi::ConnectionId* id, abi::ConnectionParameters* parameters);
  int (*listen)(abi::ConnectionId* id, int backlog);
  int (*accept)(abi::ConnectionId* id, abi::ConnectionParameters* parameters);
  int (*get_cm_event)(abi::EventChannel* channel, abi::ConnectionEvent** event);
  int (*ack_cm_event)(abi::ConnectionEvent* event);
  uint16_t (*get_src_port)(abi::ConnectionId* id);  // in network byte order
  const char* (*event_str)(int type);
};

// The environment variable that names another file than librdmacm.so.1.
inline constexpr char kRdmacmVariable[] = "AR_RDMACM_LIB";

// As LoadLibrary does; only what uses an iWARP device asks for it.
StatusOr<const RdmacmLibrary*> LoadRdmacm();

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_RDMACM_LIBRARY_H_
