// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/library.h"

#include "third_party/ar_grpc/fabric/verbs/symbols.h"

namespace ar_grpc::fabric::verbs {
namespace {

StatusOr<const Library*> Load() {
  Symbols symbols(kLibraryVariable, "libibverbs.so.1", "libibverbs1", "IBVERBS_1.1");
  auto* const library = new Library{};  // as long as the process
  symbols.Find(&library->get_device_list, "ibv_get_device_list");
  symbols.Find(&library->free_device_list, "ibv_free_device_list");
  symbols.Find(&library->get_device_name, "ibv_get_device_name");
  symbols.Find(&library->open_device, "ibv_open_device");
  symbols.Find(&library->close_device, "ibv_close_device");
  symbols.Find(&library->query_device, "ibv_query_device");
  symbols.Find(&library->query_port, "ibv_query_port");
  symbols.Find(&library->query_gid_table, "_ibv_query_gid_table", "IBVERBS_1.11");
  symbols.Find(&library->query_pkey, "ibv_query_pkey");
  symbols.Find(&library->alloc_pd, "ibv_alloc_pd");
  symbols.Find(&library->dealloc_pd, "ibv_dealloc_pd");
  symbols.Find(&library->reg_mr, "ibv_reg_mr");
  symbols.Find(&library->dereg_mr, "ibv_dereg_mr");
  symbols.Find(&library->create_comp_channel, "ibv_create_comp_channel", "IBVERBS_1.0");
  symbols.Find(&library->destroy_comp_channel, "ibv_destroy_comp_channel", "IBVERBS_1.0");
  symbols.Find(&library->create_cq, "ibv_create_cq");
  symbols.Find(&library->destroy_cq, "ibv_destroy_cq");
  symbols.Find(&library->get_cq_event, "ibv_get_cq_event");
  symbols.Find(&library->ack_cq_events, "ibv_ack_cq_events");
  symbols.Find(&library->create_qp, "ibv_create_qp");
  symbols.Find(&library->modify_qp, "ibv_modify_qp");
  symbols.Find(&library->destroy_qp, "ibv_destroy_qp");
  symbols.Find(&library->get_async_event, "ibv_get_async_event");
  symbols.Find(&library->ack_async_event, "ibv_ack_async_event");
  symbols.Find(&library->wc_status_str, "ibv_wc_status_str");
  symbols.Find(&library->event_type_str, "ibv_event_type_str");
  if (symbols.status().ok()) return library;
  delete library;
  return symbols.status();
}

}  // namespace

StatusOr<const Library*> LoadLibrary() {
  static const auto* const loaded = new StatusOr<const Library*>(Load());
  return *loaded;
}

}  // namespace ar_grpc::fabric::verbs
