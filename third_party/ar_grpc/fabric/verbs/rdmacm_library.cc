// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/rdmacm_library.h"

#include "third_party/ar_grpc/fabric/verbs/symbols.h"

namespace ar_grpc::fabric::verbs {
namespace {

StatusOr<const RdmacmLibrary*> Load() {
  Symbols symbols(kRdmacmVariable, "librdmacm.so.1", "librdmacm1", "RDMACM_1.0");
  auto* const library = new RdmacmLibrary{};  // as long as the process
  symbols.Find(&library->create_event_channel, "rdma_create_event_channel");
  symbols.Find(&library->destroy_event_channel, "rdma_destroy_event_channel");
  symbols.Find(&library->create_id, "rdma_create_id");
  symbols.Find(&library->destroy_id, "rdma_destroy_id");
  symbols.Find(&library->bind_addr, "rdma_bind_addr");
  symbols.Find(&library->resolve_addr, "rdma_resolve_addr");
  symbols.Find(&library->resolve_route, "rdma_resolve_route");
  symbols.Find(&library->connect, "rdma_connect");
  symbols.Find(&library->listen, "rdma_listen");
  symbols.Find(&library->accept, "rdma_accept");
  symbols.Find(&library->get_cm_event, "rdma_get_cm_event");
  symbols.Find(&library->ack_cm_event, "rdma_ack_cm_event");
  symbols.Find(&library->get_src_port, "rdma_get_src_port");
  symbols.Find(&library->event_str, "rdma_event_str");
  if (symbols.status().ok()) return library;
  delete library;
  return symbols.status();
}

}  // namespace

StatusOr<const RdmacmLibrary*> LoadRdmacm() {
  static const auto* const loaded = new StatusOr<const RdmacmLibrary*>(Load());
  return *loaded;
}

}  // namespace ar_grpc::fabric::verbs
