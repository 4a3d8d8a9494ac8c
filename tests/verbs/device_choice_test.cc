// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Which of several devices, ports and NUMA nodes a process uses, and what its log says of it.

#include "third_party/ar_grpc/fabric/verbs/device_choice.h"

#include <sched.h>

#include <fstream>

#include "tests/common/new_folder.h"
#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/fabric/verbs/address.h"
#include "third_party/ar_grpc/fabric/verbs/numa.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr uint8_t kRoce = abi::kLinkLayerEthernet;
constexpr uint8_t kIb = abi::kLinkLayerInfiniBand;
constexpr char kNotUsed[] =
    " not used: one port of one device for each process; choose with RDMA_DEVICE and "
    "RDMA_DEVICE_PORT";

Settings Of(const std::string& device, uint8_t port = 0) {
  Settings settings;
  settings.device = device;
  settings.port = port;
  return settings;
}

void Chooses(const std::vector<Candidate>& candidates, const Settings& settings, int home,
             size_t index, const std::string& line) {
  const Choice choice = Value(ChooseDevice(candidates, settings, home));
  Check(choice.line == line, "said: " + choice.line);
  Check(choice.index == index, "another one: " + std::to_string(choice.index));
}

void Declines(const std::vector<Candidate>& candidates, const Settings& settings,
              const std::string& line) {
  const Status status = ChooseDevice(candidates, settings, 0).status();
  CheckCode(status, StatusCode::kUnavailable);
  Check(status.message() == line, "said: " + status.message());
}

const std::vector<Candidate>& Rails() {
  static const auto* const rails = new std::vector<Candidate>{
      {"mlx5_0", 1, kIb, 100000, 0},
      {"mlx5_1", 1, kIb, 100000, 1},
      {"mlx5_2", 1, kRoce, 25000, 1},
      {"mlx5_2", 2, kRoce, 25000, 1, "its port is down"},
      {"usnic0", 0, kIb, 0, kNoNode, "neither InfiniBand nor RoCE nor iWARP"},
  };
  return *rails;
}

void OneOfOne() {
  Chooses({{"rxe0", 1, kRoce, 2500, kNoNode}}, {}, kNoNode, 0,
          "RDMA over rxe0/1 (RoCE, 2.5 Gb/s), the only port that can be used");
  Chooses({{"rxe0", 1, kRoce, 0, 3}}, {}, 3, 0,
          "RDMA over rxe0/1 (RoCE, NUMA node 3), the only port that can be used");
  Chooses({{"siw0", 1, kLinkLayerIwarp, 10000}}, {}, kNoNode, 0,
          "RDMA over siw0/1 (iWARP, 10 Gb/s), the only port that can be used");
  Chooses({{"mlx4_0", 1, kIb, 0, kNoNode, "its port is down"}, {"mlx4_0", 2, kIb, 56000}}, {}, 0, 1,
          "RDMA over mlx4_0/2 (InfiniBand, 56 Gb/s), the only port that can be used; "
          "mlx4_0/1 cannot be used: its port is down");
}

void TheBestOfSeveral() {
  const std::string lacks =
      "; mlx5_2/2 cannot be used: its port is down; usnic0 cannot be used: neither InfiniBand nor "
      "RoCE nor iWARP";
  Chooses(Rails(), {}, 1, 1,
          "RDMA over mlx5_1/1 (InfiniBand, 100 Gb/s, NUMA node 1), as fast as others, and on this "
          "process's NUMA node; mlx5_0/1, mlx5_2/1" +
              std::string(kNotUsed) + lacks);
  for (const int home : {kNoNode, 2}) {
    Chooses(Rails(), {}, home, 0,
            "RDMA over mlx5_0/1 (InfiniBand, 100 Gb/s, NUMA node 0), the first of those that are "
            "alike; mlx5_1/1, mlx5_2/1" +
                std::string(kNotUsed) + lacks);
  }
  // The faster one, although it is on another node.
  Chooses({{"mlx5_0", 1, kRoce, 25000, 0}, {"mlx5_1", 1, kRoce, 100000, 1}}, {}, 0, 1,
          "RDMA over mlx5_1/1 (RoCE, 100 Gb/s, NUMA node 1), the fastest; mlx5_0/1" +
              std::string(kNotUsed));
  // Whose node and rate nobody knows are alike.
  Chooses(
      {{"rxe0", 1, kRoce}, {"rxe1", 1, kRoce}}, {}, kNoNode, 0,
      "RDMA over rxe0/1 (RoCE), the first of those that are alike; rxe1/1" + std::string(kNotUsed));
}

void TheOneThatIsNamed() {
  Chooses(Rails(), Of("mlx5_2"), 0, 2,
          "RDMA over mlx5_2/1 (RoCE, 25 Gb/s, NUMA node 1), named by RDMA_DEVICE; mlx5_0/1, "
          "mlx5_1/1" +
              std::string(kNotUsed) + "; mlx5_2/2 cannot be used: its port is down");
  Chooses({{"mlx5_0", 1, kIb, 100000}, {"mlx5_0", 2, kIb, 100000}}, Of("", 2), 0, 1,
          "RDMA over mlx5_0/2 (InfiniBand, 100 Gb/s), named by RDMA_DEVICE_PORT; mlx5_0/1" +
              std::string(kNotUsed));
}

void None() {
  Declines({}, {}, "this machine has no RDMA device");
  Declines({}, Of("mlx5_0"), "this machine has no RDMA device");
  Declines({Rails()[3], Rails()[4]}, {},
           "no RDMA device can be used: mlx5_2/2: its port is down; usnic0: neither InfiniBand nor "
           "RoCE nor iWARP");
  Declines(Rails(), Of("mlx5_2", 2), "no RDMA device can be used: mlx5_2/2: its port is down");
  Declines(Rails(), Of("mlx5_9"),
           "RDMA_DEVICE=mlx5_9: this machine has no such RDMA device, only mlx5_0, mlx5_1, mlx5_2, "
           "usnic0; correct it, or unset RDMA_DEVICE");
  Declines(Rails(), Of("mlx5_2", 3),
           "RDMA_DEVICE_PORT=3: mlx5_2 has no such port, only mlx5_2/1, mlx5_2/2; correct it, or "
           "unset RDMA_DEVICE_PORT");
  Declines({Rails()[0]}, Of("", 7),
           "RDMA_DEVICE_PORT=7: no RDMA device here has such a port; correct it, or unset "
           "RDMA_DEVICE_PORT");
}

void LinkRates() {
  Check(LinkRate(1, 1) == 2500 && LinkRate(2, 32) == 100000, "one and four lanes");
  Check(LinkRate(2, 128) == 400000 && LinkRate(8, 16) == 168000, "NDR and FDR");
  Check(LinkRate(16, 64) == 100000 && LinkRate(4, 4) == 80000, "two and eight lanes");
  Check(LinkRate(0, 1) == 0 && LinkRate(2, 3) == 0 && LinkRate(3, 2) == 0, "not known");
}

void Write(const std::filesystem::path& file, const std::string& text) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

// A sysfs of files: two nodes, the second with the only processor that this process may use.
void Nodes() {
  const std::filesystem::path sys = ar_grpc::testing::NewFolder();
  Check(NodeOfMostProcessors(sys) == kNoNode, "a node of a machine without");
  cpu_set_t mine;
  Check(sched_getaffinity(0, sizeof(mine), &mine) == 0, "processors");
  int cpu = 0;
  while (!CPU_ISSET(cpu, &mine)) ++cpu;
  CPU_ZERO(&mine);
  CPU_SET(cpu, &mine);
  Check(sched_setaffinity(0, sizeof(mine), &mine) == 0, "one processor");
  const auto others = "2000-2003," + std::to_string(cpu + 1) + "-" + std::to_string(cpu + 4);
  Write(sys / "devices/system/node/node0/cpulist", others + "\n");
  Write(sys / "devices/system/node/node2/cpulist", "4000," + std::to_string(cpu) + "\n");
  Write(sys / "devices/system/node/node3/cpulist", "\n");
  Check(NodeOfMostProcessors(sys) == 2, "another node");
  Write(sys / "class/infiniband/mlx5_0/device/numa_node", "1\n");
  Write(sys / "class/infiniband/mlx5_1/device/numa_node", "-1\n");
  Check(NodeOfDevice("mlx5_0", sys) == 1, "a device's node");
  Check(NodeOfDevice("mlx5_1", sys) == kNoNode && NodeOfDevice("rxe0", sys) == kNoNode, "none");
  std::filesystem::remove_all(sys);
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  OneOfOne();
  TheBestOfSeveral();
  TheOneThatIsNamed();
  None();
  LinkRates();
  Nodes();
  std::puts("ok device choice");
}
