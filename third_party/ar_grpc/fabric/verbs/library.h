// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_LIBRARY_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_LIBRARY_H_

#include <sys/types.h>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"

namespace ar_grpc::fabric::verbs {

// libibverbs' functions, by their names there.
struct Library {
  abi::Device** (*get_device_list)(int* count);
  void (*free_device_list)(abi::Device** list);
  const char* (*get_device_name)(abi::Device* device);
  abi::Context* (*open_device)(abi::Device* device);
  int (*close_device)(abi::Context* context);
  int (*query_device)(abi::Context* context, abi::DeviceAttributes* attributes);
  int (*query_port)(abi::Context* context, uint8_t port, abi::PortAttributes* attributes);
  ssize_t (*query_gid_table)(abi::Context* context, abi::GidEntry* entries, size_t most,
                             uint32_t flags, size_t entry_size);
  // In network byte order.
  int (*query_pkey)(abi::Context* context, uint8_t port, int index, uint16_t* pkey);
  abi::ProtectionDomain* (*alloc_pd)(abi::Context* context);
  int (*dealloc_pd)(abi::ProtectionDomain* domain);
  abi::MemoryRegion* (*reg_mr)(abi::ProtectionDomain* domain, void* address, size_t length,
                               int access);
  int (*dereg_mr)(abi::MemoryRegion* region);
  abi::CompletionChannel* (*create_comp_channel)(abi::Context* context);
  int (*destroy_comp_channel)(abi::CompletionChannel* channel);
  abi::CompletionQueue* (*create_cq)(abi::Context* context, int entries, void* user,
                                     abi::CompletionChannel* channel, int vector);
  int (*destroy_cq)(abi::CompletionQueue* queue);
  int (*get_cq_event)(abi::CompletionChannel* channel, abi::CompletionQueue** queue, void** user);
  void (*ack_cq_events)(abi::CompletionQueue* queue, unsigned int count);
  abi::QueuePair* (*create_qp)(abi::ProtectionDomain* domain, abi::QueuePairInit* init);
  int (*modify_qp)(abi::QueuePair* pair, abi::QueuePairAttributes* attributes, int set);
  int (*destroy_qp)(abi::QueuePair* pair);
  int (*get_async_event)(abi::Context* context, abi::AsyncEvent* event);
  void (*ack_async_event)(abi::AsyncEvent* event);
  const char* (*wc_status_str)(int status);
  const char* (*event_type_str)(int type);
};

// The environment variable that names another file than libibverbs.so.1.
inline constexpr char kLibraryVariable[] = "AR_IBVERBS_LIB";

// Opens the library at the first call; it stays open. kUnavailable: it is not there;
// kUnimplemented: it lacks a function, which it names.
StatusOr<const Library*> LoadLibrary();

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_LIBRARY_H_
