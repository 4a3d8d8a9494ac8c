// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// fabric/verbs/abi.h and library.h say what libibverbs' own header says.

#include "third_party/ar_grpc/fabric/verbs/abi.h"

#include <infiniband/verbs.h>

#include <cstdio>

#include "tests/verbs/same_abi.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"

namespace abi = ar_grpc::fabric::verbs::abi;

#define SAME_FUNCTION(ours, theirs) SAME_CALL(Library, ours, theirs)
SAME_FUNCTION(get_device_list, ibv_get_device_list);
SAME_FUNCTION(free_device_list, ibv_free_device_list);
SAME_FUNCTION(get_device_name, ibv_get_device_name);
SAME_FUNCTION(open_device, ibv_open_device);
SAME_FUNCTION(close_device, ibv_close_device);
SAME_FUNCTION(query_device, ibv_query_device);
SAME_FUNCTION(query_port, ibv_query_port);
SAME_FUNCTION(query_gid_table, _ibv_query_gid_table);
SAME_FUNCTION(query_pkey, ibv_query_pkey);
SAME_FUNCTION(alloc_pd, ibv_alloc_pd);
SAME_FUNCTION(dealloc_pd, ibv_dealloc_pd);
SAME_FUNCTION(reg_mr, ibv_reg_mr);
SAME_FUNCTION(dereg_mr, ibv_dereg_mr);
SAME_FUNCTION(create_comp_channel, ibv_create_comp_channel);
SAME_FUNCTION(destroy_comp_channel, ibv_destroy_comp_channel);
SAME_FUNCTION(create_cq, ibv_create_cq);
SAME_FUNCTION(destroy_cq, ibv_destroy_cq);
SAME_FUNCTION(get_cq_event, ibv_get_cq_event);
SAME_FUNCTION(ack_cq_events, ibv_ack_cq_events);
SAME_FUNCTION(create_qp, ibv_create_qp);
SAME_FUNCTION(modify_qp, ibv_modify_qp);
SAME_FUNCTION(destroy_qp, ibv_destroy_qp);
SAME_FUNCTION(get_async_event, ibv_get_async_event);
SAME_FUNCTION(ack_async_event, ibv_ack_async_event);
SAME_FUNCTION(wc_status_str, ibv_wc_status_str);
SAME_FUNCTION(event_type_str, ibv_event_type_str);

SAME_PLACE(Device, node_type, ibv_device, node_type);
SAME_PLACE(Device, transport_type, ibv_device, transport_type);
SAME_NUMBER(kTransportInfiniBand, IBV_TRANSPORT_IB);
SAME_NUMBER(kTransportIwarp, IBV_TRANSPORT_IWARP);

SAME_SIZE(ContextOperations, ibv_context_ops);
SAME_PLACE(ContextOperations, poll_cq, ibv_context_ops, poll_cq);
SAME_PLACE(ContextOperations, req_notify_cq, ibv_context_ops, req_notify_cq);
SAME_PLACE(ContextOperations, post_send, ibv_context_ops, post_send);

SAME_SIZE(Context, ibv_context);
SAME_PLACE(Context, device, ibv_context, device);
SAME_PLACE(Context, operations, ibv_context, ops);
SAME_PLACE(Context, async_fd, ibv_context, async_fd);

SAME_SIZE(DeviceAttributes, ibv_device_attr);
SAME_PLACE(DeviceAttributes, max_mr_size, ibv_device_attr, max_mr_size);
SAME_PLACE(DeviceAttributes, max_qp_wr, ibv_device_attr, max_qp_wr);
SAME_PLACE(DeviceAttributes, max_cqe, ibv_device_attr, max_cqe);
SAME_PLACE(DeviceAttributes, max_qp_rd_atom, ibv_device_attr, max_qp_rd_atom);
SAME_PLACE(DeviceAttributes, max_qp_init_rd_atom, ibv_device_attr, max_qp_init_rd_atom);
SAME_PLACE(DeviceAttributes, ports, ibv_device_attr, phys_port_cnt);

SAME_NUMBER(kPortActive, IBV_PORT_ACTIVE);
SAME_NUMBER(kSmallestMtu, IBV_MTU_256);
SAME_NUMBER(kLargestMtu, IBV_MTU_4096);
SAME_NUMBER(kLinkLayerUnspecified, IBV_LINK_LAYER_UNSPECIFIED);
SAME_NUMBER(kLinkLayerInfiniBand, IBV_LINK_LAYER_INFINIBAND);
SAME_NUMBER(kLinkLayerEthernet, IBV_LINK_LAYER_ETHERNET);
SAME_SIZE(PortAttributes, ibv_port_attr);
SAME_PLACE(PortAttributes, state, ibv_port_attr, state);
SAME_PLACE(PortAttributes, active_mtu, ibv_port_attr, active_mtu);
SAME_PLACE(PortAttributes, gid_count, ibv_port_attr, gid_tbl_len);
SAME_PLACE(PortAttributes, max_msg_sz, ibv_port_attr, max_msg_sz);
SAME_PLACE(PortAttributes, lid, ibv_port_attr, lid);
SAME_PLACE(PortAttributes, pkey_count, ibv_port_attr, pkey_tbl_len);
SAME_PLACE(PortAttributes, active_width, ibv_port_attr, active_width);
SAME_PLACE(PortAttributes, active_speed, ibv_port_attr, active_speed);
SAME_PLACE(PortAttributes, physical_state, ibv_port_attr, phys_state);
SAME_PLACE(PortAttributes, link_layer, ibv_port_attr, link_layer);

SAME_NUMBER(kGidTypeInfiniBand, IBV_GID_TYPE_IB);
SAME_NUMBER(kGidTypeRoceV1, IBV_GID_TYPE_ROCE_V1);
SAME_NUMBER(kGidTypeRoceV2, IBV_GID_TYPE_ROCE_V2);
static_assert(sizeof(abi::Gid) == sizeof(ibv_gid));
SAME_SIZE(GidEntry, ibv_gid_entry);
static_assert(alignof(abi::GidEntry) == alignof(ibv_gid_entry));
SAME_PLACE(GidEntry, gid, ibv_gid_entry, gid);
SAME_PLACE(GidEntry, index, ibv_gid_entry, gid_index);
SAME_PLACE(GidEntry, port, ibv_gid_entry, port_num);
SAME_PLACE(GidEntry, type, ibv_gid_entry, gid_type);

SAME_NUMBER(kAccessLocalWrite, IBV_ACCESS_LOCAL_WRITE);
SAME_NUMBER(kAccessRemoteWrite, IBV_ACCESS_REMOTE_WRITE);
SAME_NUMBER(kAccessRemoteRead, IBV_ACCESS_REMOTE_READ);
SAME_SIZE(MemoryRegion, ibv_mr);
SAME_PLACE(MemoryRegion, lkey, ibv_mr, lkey);
SAME_PLACE(MemoryRegion, rkey, ibv_mr, rkey);

SAME_PLACE(CompletionChannel, fd, ibv_comp_channel, fd);
SAME_PLACE(CompletionQueue, context, ibv_cq, context);

SAME_NUMBER(kCompleted, IBV_WC_SUCCESS);
SAME_NUMBER(kLocalLengthError, IBV_WC_LOC_LEN_ERR);
SAME_NUMBER(kLocalProtectionError, IBV_WC_LOC_PROT_ERR);
SAME_NUMBER(kFlushed, IBV_WC_WR_FLUSH_ERR);
SAME_NUMBER(kRemoteInvalidRequest, IBV_WC_REM_INV_REQ_ERR);
SAME_NUMBER(kRemoteAccessError, IBV_WC_REM_ACCESS_ERR);
SAME_SIZE(WorkCompletion, ibv_wc);
SAME_PLACE(WorkCompletion, id, ibv_wc, wr_id);
SAME_PLACE(WorkCompletion, status, ibv_wc, status);

SAME_SIZE(Capacity, ibv_qp_cap);
SAME_PLACE(Capacity, max_send_wr, ibv_qp_cap, max_send_wr);
SAME_PLACE(Capacity, max_recv_wr, ibv_qp_cap, max_recv_wr);
SAME_PLACE(Capacity, max_send_sge, ibv_qp_cap, max_send_sge);
SAME_PLACE(Capacity, max_recv_sge, ibv_qp_cap, max_recv_sge);
SAME_NUMBER(kReliableConnection, IBV_QPT_RC);
SAME_SIZE(QueuePairInit, ibv_qp_init_attr);
SAME_PLACE(QueuePairInit, send_queue, ibv_qp_init_attr, send_cq);
SAME_PLACE(QueuePairInit, receive_queue, ibv_qp_init_attr, recv_cq);
SAME_PLACE(QueuePairInit, capacity, ibv_qp_init_attr, cap);
SAME_PLACE(QueuePairInit, type, ibv_qp_init_attr, qp_type);
SAME_PLACE(QueuePairInit, signal_all, ibv_qp_init_attr, sq_sig_all);
SAME_PLACE(QueuePair, context, ibv_qp, context);
SAME_PLACE(QueuePair, number, ibv_qp, qp_num);

SAME_SIZE(AddressAttributes, ibv_ah_attr);
SAME_PLACE(AddressAttributes, gid, ibv_ah_attr, grh.dgid);
SAME_PLACE(AddressAttributes, gid_index, ibv_ah_attr, grh.sgid_index);
SAME_PLACE(AddressAttributes, hop_limit, ibv_ah_attr, grh.hop_limit);
SAME_PLACE(AddressAttributes, lid, ibv_ah_attr, dlid);
SAME_PLACE(AddressAttributes, is_global, ibv_ah_attr, is_global);
SAME_PLACE(AddressAttributes, port, ibv_ah_attr, port_num);

SAME_NUMBER(kStateInit, IBV_QPS_INIT);
SAME_NUMBER(kStateReadyToReceive, IBV_QPS_RTR);
SAME_NUMBER(kStateReadyToSend, IBV_QPS_RTS);
SAME_NUMBER(kStateError, IBV_QPS_ERR);
SAME_NUMBER(kSetState, IBV_QP_STATE);
SAME_NUMBER(kSetAccess, IBV_QP_ACCESS_FLAGS);
SAME_NUMBER(kSetPkeyIndex, IBV_QP_PKEY_INDEX);
SAME_NUMBER(kSetPort, IBV_QP_PORT);
SAME_NUMBER(kSetAddress, IBV_QP_AV);
SAME_NUMBER(kSetMtu, IBV_QP_PATH_MTU);
SAME_NUMBER(kSetTimeout, IBV_QP_TIMEOUT);
SAME_NUMBER(kSetRetries, IBV_QP_RETRY_CNT);
SAME_NUMBER(kSetRnrRetries, IBV_QP_RNR_RETRY);
SAME_NUMBER(kSetReceivePsn, IBV_QP_RQ_PSN);
SAME_NUMBER(kSetMaxReads, IBV_QP_MAX_QP_RD_ATOMIC);
SAME_NUMBER(kSetMinRnrTimer, IBV_QP_MIN_RNR_TIMER);
SAME_NUMBER(kSetSendPsn, IBV_QP_SQ_PSN);
SAME_NUMBER(kSetMaxServedReads, IBV_QP_MAX_DEST_RD_ATOMIC);
SAME_NUMBER(kSetPeer, IBV_QP_DEST_QPN);
SAME_SIZE(QueuePairAttributes, ibv_qp_attr);
SAME_PLACE(QueuePairAttributes, state, ibv_qp_attr, qp_state);
SAME_PLACE(QueuePairAttributes, mtu, ibv_qp_attr, path_mtu);
SAME_PLACE(QueuePairAttributes, receive_psn, ibv_qp_attr, rq_psn);
SAME_PLACE(QueuePairAttributes, send_psn, ibv_qp_attr, sq_psn);
SAME_PLACE(QueuePairAttributes, peer, ibv_qp_attr, dest_qp_num);
SAME_PLACE(QueuePairAttributes, access, ibv_qp_attr, qp_access_flags);
SAME_PLACE(QueuePairAttributes, address, ibv_qp_attr, ah_attr);
SAME_PLACE(QueuePairAttributes, pkey_index, ibv_qp_attr, pkey_index);
SAME_PLACE(QueuePairAttributes, max_reads, ibv_qp_attr, max_rd_atomic);
SAME_PLACE(QueuePairAttributes, max_served_reads, ibv_qp_attr, max_dest_rd_atomic);
SAME_PLACE(QueuePairAttributes, min_rnr_timer, ibv_qp_attr, min_rnr_timer);
SAME_PLACE(QueuePairAttributes, port, ibv_qp_attr, port_num);
SAME_PLACE(QueuePairAttributes, timeout, ibv_qp_attr, timeout);
SAME_PLACE(QueuePairAttributes, retries, ibv_qp_attr, retry_cnt);
SAME_PLACE(QueuePairAttributes, rnr_retries, ibv_qp_attr, rnr_retry);

SAME_SIZE(Piece, ibv_sge);
SAME_PLACE(Piece, address, ibv_sge, addr);
SAME_PLACE(Piece, length, ibv_sge, length);
SAME_PLACE(Piece, lkey, ibv_sge, lkey);
SAME_NUMBER(kRdmaWrite, IBV_WR_RDMA_WRITE);
SAME_NUMBER(kRdmaRead, IBV_WR_RDMA_READ);
SAME_NUMBER(kSignaled, IBV_SEND_SIGNALED);
SAME_SIZE(SendRequest, ibv_send_wr);
SAME_PLACE(SendRequest, id, ibv_send_wr, wr_id);
SAME_PLACE(SendRequest, next, ibv_send_wr, next);
SAME_PLACE(SendRequest, pieces, ibv_send_wr, sg_list);
SAME_PLACE(SendRequest, count, ibv_send_wr, num_sge);
SAME_PLACE(SendRequest, opcode, ibv_send_wr, opcode);
SAME_PLACE(SendRequest, flags, ibv_send_wr, send_flags);
SAME_PLACE(SendRequest, remote_address, ibv_send_wr, wr.rdma.remote_addr);
SAME_PLACE(SendRequest, rkey, ibv_send_wr, wr.rdma.rkey);

SAME_NUMBER(kEventQueueError, IBV_EVENT_CQ_ERR);
SAME_NUMBER(kEventPairFatal, IBV_EVENT_QP_FATAL);
SAME_NUMBER(kEventPairRequestError, IBV_EVENT_QP_REQ_ERR);
SAME_NUMBER(kEventPairAccessError, IBV_EVENT_QP_ACCESS_ERR);
SAME_NUMBER(kEventDeviceFatal, IBV_EVENT_DEVICE_FATAL);
SAME_NUMBER(kEventGidChange, IBV_EVENT_GID_CHANGE);
SAME_SIZE(AsyncEvent, ibv_async_event);
SAME_PLACE(AsyncEvent, queue, ibv_async_event, element.cq);
SAME_PLACE(AsyncEvent, pair, ibv_async_event, element.qp);
SAME_PLACE(AsyncEvent, type, ibv_async_event, event_type);

int main() { std::puts("ok abi: layouts and numbers are those of infiniband/verbs.h"); }
