// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/numa.h"

#include <sched.h>

#include <algorithm>
#include <fstream>

#include "third_party/ar_grpc/fabric/verbs/device_choice.h"

namespace ar_grpc::fabric::verbs {
namespace {

constexpr int kMostNodes = 1024;

// Of those in a list such as "0-3,8,10-11", how many this process may use.
int Allowed(std::istream& list, const cpu_set_t& mine) {
  int count = 0;
  int first = 0;
  while (list >> first) {
    int last = first;
    if (list.peek() == '-' && !(list.ignore() >> last)) break;
    for (int i = std::max(first, 0); i <= std::min(last, CPU_SETSIZE - 1); ++i) {
      if (CPU_ISSET(i, &mine)) ++count;
    }
    list.ignore();
  }
  return count;
}

}  // namespace

int NodeOfDevice(const std::string& device, const std::string& sys) {
  std::ifstream file(sys + "/class/infiniband/" + device + "/device/numa_node");
  int node = kNoNode;
  return file >> node && node >= 0 ? node : kNoNode;
}

int NodeOfMostProcessors(const std::string& sys) {
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof(mine), &mine) != 0) return kNoNode;
  int best = kNoNode;
  int most = 0;
  for (int node = 0; node < kMostNodes; ++node) {
    std::ifstream list(sys + "/devices/system/node/node" + std::to_string(node) + "/cpulist");
    if (!list) continue;  // their numbers may have gaps
    if (const int count = Allowed(list, mine); count > most) {
      best = node;
      most = count;
    }
  }
  return best;
}

}  // namespace ar_grpc::fabric::verbs
