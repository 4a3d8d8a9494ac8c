// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_DEVICE_CHOICE_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_DEVICE_CHOICE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/settings.h"

namespace ar_grpc::fabric::verbs {

inline constexpr int kNoNode = -1;

// A port of a device, or a device of which no port is known, as its choice sees it.
struct Candidate {
  std::string device;
  uint8_t port = 0;  // 0: of none is known
  uint8_t link_layer = abi::kLinkLayerInfiniBand;
  uint64_t rate = 0;          // megabits a second of its link; 0: not known
  int numa_node = kNoNode;    // of the device
  std::string unusable = {};  // why it cannot be used; empty: it can
};

struct Choice {
  size_t index = 0;  // of the candidate
  std::string line;  // for the log: what was chosen, why, and what was not and why not
};

// The one that the settings name, else the fastest, else the one on `home`, the NUMA node of most
// of this process's processors, else the first. kUnavailable says what each lacks.
StatusOr<Choice> ChooseDevice(const std::vector<Candidate>& candidates, const Settings& settings,
                              int home);

// Megabits a second of a port's link; 0 where the device gives numbers that are not known here.
uint64_t LinkRate(uint8_t active_width, uint8_t active_speed);

// As people and messages name a port: "mlx5_0/1".
std::string PortName(const std::string& device, uint8_t port);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_DEVICE_CHOICE_H_
