// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ABI_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ABI_H_

#include <pthread.h>

#include <array>
#include <cstddef>
#include <cstdint>

// What is used of libibverbs' binary interface: layouts and numbers, which have not changed since
// its symbol version 1.1. The wheel is built without its header and finds the library at run time;
// tests/verbs/abi_test.cc holds all of this against the header.
//
// Where the library makes an object only its leading members are declared; what this process makes
// has the full size. Enumerations are 32 bits wide there and plain integers here.
namespace ar_grpc::fabric::verbs::abi {

inline constexpr int kTransportInfiniBand = 0;  // RoCE, too
inline constexpr int kTransportIwarp = 1;

struct Device {
  void* reserved[2];
  int node_type;
  int transport_type;
};

struct CompletionQueue;
struct QueuePair;
struct WorkCompletion;
struct SendRequest;
struct ReceiveRequest;

using AnyOperation = void (*)();

// The operations that the header calls through the context.
struct ContextOperations {
  AnyOperation before_poll_cq[11];
  int (*poll_cq)(CompletionQueue* queue, int count, WorkCompletion* completions);
  int (*req_notify_cq)(CompletionQueue* queue, int solicited_only);
  AnyOperation before_post_send[12];
  int (*post_send)(QueuePair* pair, SendRequest* request, SendRequest** refused);
  int (*post_recv)(QueuePair* pair, ReceiveRequest* request, ReceiveRequest** refused);
  AnyOperation after_post_recv[5];
};

struct Context {
  Device* device;
  ContextOperations operations;
  int command_fd;
  int async_fd;
  int completion_vectors;
  pthread_mutex_t mutex;
  void* compatibility;
};

struct DeviceAttributes {
  char firmware[64];
  uint64_t node_guid;
  uint64_t system_guid;
  uint64_t max_mr_size;
  uint64_t page_sizes;
  uint32_t vendor[3];
  int max_qp;
  int max_qp_wr;
  unsigned int flags;
  int max_sge;
  int max_sge_rd;
  int max_cq;
  int max_cqe;
  int max_mr;
  int max_pd;
  int max_qp_rd_atom;
  int max_ee_rd_atom;
  int max_res_rd_atom;
  int max_qp_init_rd_atom;
  int reserved[16];
  uint16_t max_pkeys;
  uint8_t ack_delay;
  uint8_t ports;
};

inline constexpr int kPortActive = 4;
inline constexpr int kSmallestMtu = 1;               // 256 bytes; each next one is twice as large
inline constexpr int kLargestMtu = 5;                // 4096 bytes
inline constexpr uint8_t kLinkLayerUnspecified = 0;  // of old drivers: InfiniBand
inline constexpr uint8_t kLinkLayerInfiniBand = 1;
inline constexpr uint8_t kLinkLayerEthernet = 2;

struct PortAttributes {
  int state;
  int max_mtu;
  int active_mtu;
  int gid_count;
  uint32_t capabilities;
  uint32_t max_msg_sz;
  uint32_t bad_pkeys;
  uint32_t bad_qkeys;
  uint16_t pkey_count;
  uint16_t lid;
  uint16_t sm_lid;
  uint8_t reserved[5];
  uint8_t active_width;
  uint8_t active_speed;
  uint8_t physical_state;
  uint8_t link_layer;
  uint8_t flags;
  uint16_t capabilities2;
};

using Gid = std::array<uint8_t, 16>;
inline constexpr uint32_t kGidTypeInfiniBand = 0;
inline constexpr uint32_t kGidTypeRoceV1 = 1;
inline constexpr uint32_t kGidTypeRoceV2 = 2;

struct GidEntry {
  alignas(8) Gid gid;
  uint32_t index;
  uint32_t port;
  uint32_t type;
  uint32_t interface;
};

struct ProtectionDomain;

inline constexpr int kAccessLocalWrite = 1;
inline constexpr int kAccessRemoteWrite = 2;
inline constexpr int kAccessRemoteRead = 4;

struct MemoryRegion {
  Context* context;
  ProtectionDomain* domain;
  void* address;
  size_t length;
  uint32_t handle;
  uint32_t lkey;
  uint32_t rkey;
};

struct CompletionChannel {
  Context* context;
  int fd;
};

struct CompletionQueue {
  Context* context;
};

inline constexpr int kCompleted = 0;  // a work completion's status
inline constexpr int kLocalLengthError = 1;
inline constexpr int kLocalProtectionError = 4;
inline constexpr int kFlushed = 5;
inline constexpr int kRemoteInvalidRequest = 9;
inline constexpr int kRemoteAccessError = 10;

struct WorkCompletion {
  uint64_t id;
  int status;
  int opcode;
  uint32_t vendor_error;
  uint32_t bytes;
  uint32_t immediate;
  uint32_t pair;
  uint32_t source;
  unsigned int flags;
  uint16_t pkey_index;
  uint16_t source_lid;
  uint8_t service_level;
  uint8_t path_bits;
};

struct Capacity {
  uint32_t max_send_wr;
  uint32_t max_recv_wr;
  uint32_t max_send_sge;
  uint32_t max_recv_sge;
  uint32_t max_inline_data;
};

inline constexpr int kReliableConnection = 2;

struct QueuePairInit {
  void* context;
  CompletionQueue* send_queue;
  CompletionQueue* receive_queue;
  void* shared_receive_queue;
  Capacity capacity;
  int type;
  int signal_all;
};

struct QueuePair {
  Context* context;
  void* user;
  ProtectionDomain* domain;
  CompletionQueue* send_queue;
  CompletionQueue* receive_queue;
  void* shared_receive_queue;
  uint32_t handle;
  uint32_t number;
};

struct AddressAttributes {
  alignas(8) Gid gid;
  uint32_t flow_label;
  uint8_t gid_index;
  uint8_t hop_limit;
  uint8_t traffic_class;
  uint16_t lid;
  uint8_t service_level;
  uint8_t path_bits;
  uint8_t static_rate;
  uint8_t is_global;
  uint8_t port;
};

inline constexpr int kStateInit = 1;
inline constexpr int kStateReadyToReceive = 2;
inline constexpr int kStateReadyToSend = 3;
inline constexpr int kStateError = 6;

// Which members of QueuePairAttributes are set.
inline constexpr int kSetState = 1 << 0;
inline constexpr int kSetAccess = 1 << 3;
inline constexpr int kSetPkeyIndex = 1 << 4;
inline constexpr int kSetPort = 1 << 5;
inline constexpr int kSetAddress = 1 << 7;
inline constexpr int kSetMtu = 1 << 8;
inline constexpr int kSetTimeout = 1 << 9;
inline constexpr int kSetRetries = 1 << 10;
inline constexpr int kSetRnrRetries = 1 << 11;
inline constexpr int kSetReceivePsn = 1 << 12;
inline constexpr int kSetMaxReads = 1 << 13;
inline constexpr int kSetMinRnrTimer = 1 << 15;
inline constexpr int kSetSendPsn = 1 << 16;
inline constexpr int kSetMaxServedReads = 1 << 17;
inline constexpr int kSetPeer = 1 << 20;

struct QueuePairAttributes {
  int state;
  int current_state;
  int mtu;
  int migration;
  uint32_t qkey;
  uint32_t receive_psn;
  uint32_t send_psn;
  uint32_t peer;
  unsigned int access;
  Capacity capacity;
  AddressAttributes address;
  AddressAttributes other_address;
  uint16_t pkey_index;
  uint16_t other_pkey_index;
  uint8_t notify_drained;
  uint8_t draining;
  uint8_t max_reads;
  uint8_t max_served_reads;
  uint8_t min_rnr_timer;
  uint8_t port;
  uint8_t timeout;
  uint8_t retries;
  uint8_t rnr_retries;
  uint8_t other_port;
  uint8_t other_timeout;
  uint32_t rate_limit;
};

struct Piece {
  uint64_t address;
  uint32_t length;
  uint32_t lkey;
};

inline constexpr int kRdmaWrite = 0;
inline constexpr int kSend = 2;
inline constexpr int kRdmaRead = 4;
inline constexpr unsigned int kSignaled = 2;
inline constexpr unsigned int kInline = 8;

struct SendRequest {
  uint64_t id;
  SendRequest* next;
  Piece* pieces;
  int count;
  int opcode;
  unsigned int flags;
  uint32_t immediate;
  uint64_t remote_address;
  uint32_t rkey;
  uint64_t reserved[9];
};

struct ReceiveRequest {
  uint64_t id;
  ReceiveRequest* next;
  Piece* pieces;
  int count;
};

inline constexpr int kEventQueueError = 0;
inline constexpr int kEventPairFatal = 1;
inline constexpr int kEventPairRequestError = 2;
inline constexpr int kEventPairAccessError = 3;
inline constexpr int kEventDeviceFatal = 8;
inline constexpr int kEventGidChange = 18;

struct AsyncEvent {
  union {
    CompletionQueue* queue;
    QueuePair* pair;
    int port;
  };
  int type;
};

}  // namespace ar_grpc::fabric::verbs::abi

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ABI_H_
