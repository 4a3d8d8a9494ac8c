// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// fabric/verbs/rdmacm_abi.h and rdmacm_library.h say what librdmacm's own header says.

#include "third_party/ar_grpc/fabric/verbs/rdmacm_abi.h"

#include <rdma/rdma_cma.h>

#include <cstdio>

#include "tests/verbs/same_abi.h"
#include "third_party/ar_grpc/fabric/verbs/rdmacm_library.h"

namespace abi = ar_grpc::fabric::verbs::abi;

#define SAME_FUNCTION(ours, theirs) SAME_CALL(RdmacmLibrary, ours, theirs)
SAME_FUNCTION(create_event_channel, rdma_create_event_channel);
SAME_FUNCTION(destroy_event_channel, rdma_destroy_event_channel);
SAME_FUNCTION(create_id, rdma_create_id);
SAME_FUNCTION(destroy_id, rdma_destroy_id);
SAME_FUNCTION(bind_addr, rdma_bind_addr);
SAME_FUNCTION(resolve_addr, rdma_resolve_addr);
SAME_FUNCTION(resolve_route, rdma_resolve_route);
SAME_FUNCTION(connect, rdma_connect);
SAME_FUNCTION(listen, rdma_listen);
SAME_FUNCTION(accept, rdma_accept);
SAME_FUNCTION(get_cm_event, rdma_get_cm_event);
SAME_FUNCTION(ack_cm_event, rdma_ack_cm_event);
SAME_FUNCTION(get_src_port, rdma_get_src_port);
SAME_FUNCTION(event_str, rdma_event_str);

SAME_SIZE(EventChannel, rdma_event_channel);
SAME_PLACE(EventChannel, fd, rdma_event_channel, fd);
SAME_PLACE(ConnectionId, verbs, rdma_cm_id, verbs);
SAME_PLACE(ConnectionId, channel, rdma_cm_id, channel);
SAME_PLACE(ConnectionId, user, rdma_cm_id, context);
SAME_PLACE(ConnectionId, pair, rdma_cm_id, qp);
SAME_NUMBER(kPortSpaceTcp, RDMA_PS_TCP);

SAME_SIZE(ConnectionParameters, rdma_conn_param);
SAME_PLACE(ConnectionParameters, private_data, rdma_conn_param, private_data);
SAME_PLACE(ConnectionParameters, private_data_bytes, rdma_conn_param, private_data_len);
SAME_PLACE(ConnectionParameters, responder_resources, rdma_conn_param, responder_resources);
SAME_PLACE(ConnectionParameters, initiator_depth, rdma_conn_param, initiator_depth);
SAME_PLACE(ConnectionParameters, flow_control, rdma_conn_param, flow_control);
SAME_PLACE(ConnectionParameters, retries, rdma_conn_param, retry_count);
SAME_PLACE(ConnectionParameters, rnr_retries, rdma_conn_param, rnr_retry_count);
SAME_PLACE(ConnectionParameters, shared_receive_queue, rdma_conn_param, srq);
SAME_PLACE(ConnectionParameters, pair_number, rdma_conn_param, qp_num);

SAME_NUMBER(kAddressResolved, RDMA_CM_EVENT_ADDR_RESOLVED);
SAME_NUMBER(kRouteResolved, RDMA_CM_EVENT_ROUTE_RESOLVED);
SAME_NUMBER(kConnectRequest, RDMA_CM_EVENT_CONNECT_REQUEST);
SAME_NUMBER(kEstablished, RDMA_CM_EVENT_ESTABLISHED);
SAME_NUMBER(kDisconnected, RDMA_CM_EVENT_DISCONNECTED);
SAME_NUMBER(kDeviceRemoval, RDMA_CM_EVENT_DEVICE_REMOVAL);
SAME_PLACE(ConnectionEvent, id, rdma_cm_event, id);
SAME_PLACE(ConnectionEvent, listener, rdma_cm_event, listen_id);
SAME_PLACE(ConnectionEvent, type, rdma_cm_event, event);
SAME_PLACE(ConnectionEvent, status, rdma_cm_event, status);
SAME_PLACE(ConnectionEvent, parameters, rdma_cm_event, param.conn);

int main() { std::puts("ok abi: layouts and numbers are those of rdma/rdma_cma.h"); }
