// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The variables that choose a device and make its queue pairs: what they are without any, at the
// ends of their ranges, and what is said of a value beyond.

#include "third_party/ar_grpc/fabric/verbs/settings.h"

#include <map>

#include "tests/verbs/pair.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

StatusOr<Settings> Read(const std::map<std::string, std::string>& variables) {
  return ReadSettings([&variables](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

void HasDefaults() {
  for (const char* const device : {"", "unset"}) {
    std::map<std::string, std::string> variables;
    if (*device == '\0') variables["RDMA_DEVICE"] = device;
    const Settings settings = Value(Read(variables));
    Check(!settings.given && settings.device.empty() && settings.port == 0, "a device");
    Check(!settings.gid_index.has_value() && settings.pkey_index == 0, "a place in a table");
    Check(settings.queue_depth == 128 && settings.service_level == 0, "a queue");
    Check(settings.timeout == 16 && settings.retries == 6, "a time");
    Check(settings.largest_mtu == abi::kLargestMtu && settings.traffic_class == 0, "a packet");
    // A packet is sent again after 4.096 us * 2^timeout: later than two round trips of 100 ms.
    Check(4.096e-6 * (1 << settings.timeout) > 0.2, "too short for a long way");
  }
}

void TakesWhatIsSet() {
  const Settings low = Value(Read({{"RDMA_DEVICE", "mlx5_0"},
                                   {"RDMA_DEVICE_PORT", "1"},
                                   {"RDMA_GID_INDEX", "0"},
                                   {"RDMA_QP_PKEY_INDEX", "0"},
                                   {"RDMA_QP_QUEUE_DEPTH", "1"},
                                   {"RDMA_QP_TIMEOUT", "0"},
                                   {"RDMA_QP_RETRY_COUNT", "0"},
                                   {"RDMA_QP_SL", "0"},
                                   {"RDMA_QP_MTU", "256"},
                                   {"RDMA_TRAFFIC_CLASS", "0"}}));
  Check(low.given && low.device == "mlx5_0" && low.port == 1, "a device");
  Check(low.gid_index == 0 && low.queue_depth == 1, "a GID");
  Check(low.timeout == 0 && low.retries == 0 && low.largest_mtu == 1, "a time");
  const Settings high = Value(Read({{"RDMA_DEVICE_PORT", "255"},
                                    {"RDMA_GID_INDEX", "255"},
                                    {"RDMA_QP_PKEY_INDEX", "65535"},
                                    {"RDMA_QP_QUEUE_DEPTH", "16384"},
                                    {"RDMA_QP_TIMEOUT", "31"},
                                    {"RDMA_QP_RETRY_COUNT", "7"},
                                    {"RDMA_QP_SL", "15"},
                                    {"RDMA_QP_MTU", "4096"},
                                    {"RDMA_TRAFFIC_CLASS", "255"}}));
  Check(high.device.empty() && high.port == 255 && high.gid_index == 255, "a device");
  Check(high.pkey_index == 65535 && high.queue_depth == 16384, "a place");
  Check(high.timeout == 31 && high.retries == 7 && high.service_level == 15, "a time");
  Check(high.largest_mtu == 5 && high.traffic_class == 255, "a packet");
  const std::map<std::string, int> mtus = {{"512", 2}, {"1024", 3}, {"2048", 4}};
  for (const auto& [text, mtu] : mtus) {
    Check(Value(Read({{"RDMA_QP_MTU", text}})).largest_mtu == mtu, text);
  }
}

void Refuses(const std::string& variable, const std::string& value, const std::string& takes) {
  const std::string says =
      variable + "=" + value + ": it takes " + takes + "; correct it, or unset " + variable;
  // Also where another one is right.
  const Status status = Read({{variable, value}, {"RDMA_DEVICE", "rxe0"}}).status();
  CheckCode(status, StatusCode::kInvalidArgument);
  Check(status.message() == says, "said: " + status.message());
}

void RefusesWhatIsWrong() {
  const std::map<std::string, std::pair<std::string, std::string>> beyond = {
      {"RDMA_DEVICE_PORT", {"256", "1 to 255"}},
      {"RDMA_GID_INDEX", {"256", "0 to 255"}},
      {"RDMA_QP_PKEY_INDEX", {"65536", "0 to 65535"}},
      {"RDMA_QP_QUEUE_DEPTH", {"16385", "1 to 16384"}},
      {"RDMA_QP_TIMEOUT", {"32", "0 to 31"}},
      {"RDMA_QP_RETRY_COUNT", {"8", "0 to 7"}},
      {"RDMA_QP_SL", {"16", "0 to 15"}},
      {"RDMA_TRAFFIC_CLASS", {"256", "0 to 255"}},
  };
  for (const auto& [variable, value] : beyond) {
    const std::string takes = "a whole number from " + value.second;
    for (const char* const wrong : {"-1", "+1", "1 ", " 1", "0x1", "1.5", "one",
                                    "99999999999999999999", value.first.c_str()}) {
      Refuses(variable, wrong, takes);
    }
  }
  Refuses("RDMA_DEVICE_PORT", "0", "a whole number from 1 to 255");
  Refuses("RDMA_QP_QUEUE_DEPTH", "0", "a whole number from 1 to 16384");
  for (const char* const wrong : {"0", "128", "1000", "1500", "8192", "01024", "1024 "}) {
    Refuses("RDMA_QP_MTU", wrong, "256, 512, 1024, 2048 or 4096 bytes");
  }
  for (const std::string& wrong : {std::string("../rxe0"), std::string(65, 'x')}) {
    Refuses("RDMA_DEVICE", wrong, "a device's name as ibv_devices shows it, such as mlx5_0");
  }
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  HasDefaults();
  TakesWhatIsSet();
  RefusesWhatIsWrong();
  std::puts("ok settings");
}
