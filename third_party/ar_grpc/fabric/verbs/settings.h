// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SETTINGS_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SETTINGS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"

namespace ar_grpc::fabric::verbs {

// The variables of the environment, by the names that TensorFlow's verbs channel had for them.
inline constexpr char kDeviceVariable[] = "RDMA_DEVICE";
inline constexpr char kPortVariable[] = "RDMA_DEVICE_PORT";
inline constexpr char kGidIndexVariable[] = "RDMA_GID_INDEX";
inline constexpr char kPkeyIndexVariable[] = "RDMA_QP_PKEY_INDEX";
inline constexpr char kQueueDepthVariable[] = "RDMA_QP_QUEUE_DEPTH";
inline constexpr char kTimeoutVariable[] = "RDMA_QP_TIMEOUT";
inline constexpr char kRetriesVariable[] = "RDMA_QP_RETRY_COUNT";
inline constexpr char kServiceLevelVariable[] = "RDMA_QP_SL";
inline constexpr char kMtuVariable[] = "RDMA_QP_MTU";
inline constexpr char kTrafficClassVariable[] = "RDMA_TRAFFIC_CLASS";

// What a process is told about its device and its queue pairs. A forked child reads it anew.
struct Settings {
  bool given = false;  // whether any variable is set
  std::string device;  // empty: the best one
  uint8_t port = 0;    // 0: the best one
  std::optional<uint8_t> gid_index;
  uint16_t pkey_index = 0;
  // READs and WRITEs that one queue pair has under way; what exceeds them waits in its own queue.
  int queue_depth = 128;
  // A packet is sent again when no answer came for 4.096 us * 2^timeout (16: 0.27 s; 0: it waits
  // for ever), `retries` times: a peer that has gone is noticed in two seconds or a few, and a
  // round trip of 100 ms, or of 200, is none too long. Not seven times: an adapter takes that for
  // seven, and Soft-RoCE for "for ever".
  uint8_t timeout = 16;
  uint8_t retries = 6;
  uint8_t service_level = 0;
  uint8_t largest_mtu = abi::kLargestMtu;  // as the interface numbers them
  uint8_t traffic_class = 0;
};

// Answers as getenv does.
using Environment = std::function<const char*(const char* name)>;

// An empty variable counts as none. kInvalidArgument names the variable, its value, what it takes
// and the cure.
StatusOr<Settings> ReadSettings(const Environment& environment);

// Of a variable whose value no device can follow: kUnavailable with the same words.
Status WrongSetting(const char* variable, const std::string& value, const std::string& why);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SETTINGS_H_
