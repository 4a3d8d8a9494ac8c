// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/device_choice.h"

#include <algorithm>
#include <utility>

#include "third_party/ar_grpc/fabric/verbs/address.h"

namespace ar_grpc::fabric::verbs {
namespace {

std::string Name(const Candidate& candidate) { return PortName(candidate.device, candidate.port); }

// "100 Gb/s", "2.5 Gb/s"
std::string RateText(uint64_t rate) {
  std::string text = std::to_string(rate / 1000);
  if (const uint64_t tenth = rate % 1000 / 100; tenth != 0) text += "." + std::to_string(tenth);
  return text + " Gb/s";
}

std::string Describe(const Candidate& candidate) {
  std::string text = Name(candidate) + " (";
  if (candidate.link_layer == kLinkLayerIwarp) {
    text += "iWARP";
  } else {
    text += candidate.link_layer == abi::kLinkLayerEthernet ? "RoCE" : "InfiniBand";
  }
  if (candidate.rate != 0) text += ", " + RateText(candidate.rate);
  if (candidate.numa_node != kNoNode) text += ", NUMA node " + std::to_string(candidate.numa_node);
  return text + ")";
}

bool Named(const Candidate& candidate, const Settings& settings) {
  return (settings.device.empty() || settings.device == candidate.device) &&
         (settings.port == 0 || candidate.port == 0 || settings.port == candidate.port);
}

// Each once, in their order.
std::string DeviceNames(const std::vector<Candidate>& candidates, const std::string& device) {
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates) {
    std::string name = device.empty() ? candidate.device : Name(candidate);
    if (!device.empty() && device != candidate.device) continue;
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(std::move(name));
    }
  }
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// What is wrong where the settings name nothing that there is.
Status NamesNothing(const std::vector<Candidate>& candidates, const Settings& settings) {
  const auto same = [&settings](const Candidate& each) { return each.device == settings.device; };
  if (!settings.device.empty() && std::none_of(candidates.begin(), candidates.end(), same)) {
    return WrongSetting(
        kDeviceVariable, settings.device,
        "this machine has no such RDMA device, only " + DeviceNames(candidates, std::string()));
  }
  const std::string on = settings.device.empty() ? "no RDMA device here" : settings.device;
  return WrongSetting(
      kPortVariable, std::to_string(settings.port),
      on + (settings.device.empty()
                ? " has such a port"
                : " has no such port, only " + DeviceNames(candidates, settings.device)));
}

// What was decided between the best and the next one.
std::string Why(const Candidate& best, const Candidate* next, const Settings& settings, int home) {
  if (next == nullptr) {
    if (!settings.device.empty()) return std::string("named by ") + kDeviceVariable;
    if (settings.port != 0) return std::string("named by ") + kPortVariable;
    return "the only port that can be used";
  }
  if (best.rate > next->rate) return "the fastest";
  if (best.numa_node == home && next->numa_node != home) {
    return "as fast as others, and on this process's NUMA node";
  }
  return "the first of those that are alike";
}

}  // namespace

std::string PortName(const std::string& device, uint8_t port) {
  return port == 0 ? device : device + "/" + std::to_string(port);
}

uint64_t LinkRate(uint8_t active_width, uint8_t active_speed) {
  const std::pair<uint8_t, uint64_t> lanes[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};
  // Of a lane: SDR, DDR, QDR, FDR10, FDR, EDR, HDR, NDR.
  const std::pair<uint8_t, uint64_t> rates[] = {{1, 2500},   {2, 5000},    {4, 10000},
                                                {8, 10000},  {16, 14000},  {32, 25000},
                                                {64, 50000}, {128, 100000}};
  const auto find = [](const auto& table, uint8_t number) -> uint64_t {
    for (const auto& [key, value] : table) {
      if (key == number) return value;
    }
    return 0;
  };
  return find(lanes, active_width) * find(rates, active_speed);
}

StatusOr<Choice> ChooseDevice(const std::vector<Candidate>& candidates, const Settings& settings,
                              int home) {
  if (candidates.empty()) {
    return Status(StatusCode::kUnavailable, "this machine has no RDMA device");
  }
  std::vector<const Candidate*> usable;
  std::string lacks;
  std::string others;
  bool names_one = false;
  for (const Candidate& candidate : candidates) {
    const bool named = Named(candidate, settings);
    names_one = names_one || named;
    if (named && candidate.unusable.empty()) {
      usable.push_back(&candidate);
      continue;
    }
    if (named) {
      lacks += (lacks.empty() ? ": " : "; ") + Name(candidate) + ": " + candidate.unusable;
      others += "; " + Name(candidate) + " cannot be used: " + candidate.unusable;
    }
  }
  if (!names_one) return NamesNothing(candidates, settings);
  if (usable.empty()) {
    return Status(StatusCode::kUnavailable, "no RDMA device can be used" + lacks);
  }
  // The index breaks what is left of a tie.
  std::stable_sort(usable.begin(), usable.end(), [home](const Candidate* a, const Candidate* b) {
    if (a->rate != b->rate) return a->rate > b->rate;
    return (home != kNoNode && a->numa_node == home) > (home != kNoNode && b->numa_node == home);
  });
  const Candidate& best = *usable.front();
  std::string declined;
  for (const Candidate& candidate : candidates) {
    if (&candidate == &best || !candidate.unusable.empty()) continue;
    declined += (declined.empty() ? "; " : ", ") + Name(candidate);
  }
  if (!declined.empty()) {
    declined += std::string(" not used: one port of one device for each process; choose with ") +
                kDeviceVariable + " and " + kPortVariable;
  }
  Choice choice;
  choice.index = static_cast<size_t>(&best - candidates.data());
  choice.line = "RDMA over " + Describe(best) + ", " +
                Why(best, usable.size() > 1 ? usable[1] : nullptr, settings, home) + declined +
                others;
  return choice;
}

}  // namespace ar_grpc::fabric::verbs
