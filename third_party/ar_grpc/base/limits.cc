// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/base/limits.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <sstream>

namespace ar_grpc {
namespace {

constexpr char kRoot[] = "/sys/fs/cgroup";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<double> Number(const std::string& text) {
  std::istringstream words(text);
  double value = 0;
  if (!(words >> value)) return std::nullopt;  // "max", or no file
  return value;
}

// Calls `look` with the folder of each group that the process is in, and of each group around it,
// in both versions' places. `controller` is the name that version 1 mounts.
void ForEachGroup(const std::string& root, const std::string& groups, const std::string& controller,
                  const std::function<void(const std::string& folder)>& look) {
  std::istringstream lines(groups);
  for (std::string line; std::getline(lines, line);) {
    // hierarchy:controllers:path
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    std::string top = root;
    if (!controllers.empty()) {
      if (("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
      top += "/" + controller;
    }
    // In a container the path may be the host's, of which only the root is mounted.
    for (;;) {
      while (!path.empty() && path.back() == '/') path.pop_back();
      look(top + path);
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
}

}  // namespace

int CoresOfGroups(const std::string& root, const std::string& groups) {
  double least = std::numeric_limits<double>::infinity();
  ForEachGroup(root, groups, "cpu", [&](const std::string& folder) {
    std::optional<double> quota;
    std::optional<double> period;
    std::istringstream both(ReadAll(folder + "/cpu.max"));  // "max 100000" or "150000 100000"
    std::string first;
    std::string second;
    if (both >> first >> second) {
      quota = Number(first);
      period = Number(second);
    } else {
      quota = Number(ReadAll(folder + "/cpu.cfs_quota_us"));
      period = Number(ReadAll(folder + "/cpu.cfs_period_us"));
    }
    // Version 1 says -1 for no quota.
    if (quota && period && *quota > 0 && *period > 0) least = std::min(least, *quota / *period);
  });
  if (least > 1 << 20) return 0;
  return std::max(1, static_cast<int>(least + 0.999));
}

uint64_t MemoryOfGroups(const std::string& root, const std::string& groups) {
  uint64_t least = UINT64_MAX;
  ForEachGroup(root, groups, "memory", [&](const std::string& folder) {
    for (const char* const name : {"/memory.max", "/memory.limit_in_bytes"}) {
      const std::optional<double> limit = Number(ReadAll(folder + name));
      // Version 1 says a number near 2^63 for no limit.
      if (limit && *limit > 0 && *limit < static_cast<double>(uint64_t{1} << 62)) {
        least = std::min(least, static_cast<uint64_t>(*limit));
      }
    }
  });
  return least;
}

int UsableCores() {
  cpu_set_t mask;
  const int allowed = sched_getaffinity(0, sizeof(mask), &mask) == 0
                          ? CPU_COUNT(&mask)
                          : static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  const int quota = CoresOfGroups(kRoot, ReadAll("/proc/self/cgroup"));
  return std::max(1, quota == 0 ? allowed : std::min(allowed, quota));
}

uint64_t UsableMemory() {
  const uint64_t machine =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(machine, MemoryOfGroups(kRoot, ReadAll("/proc/self/cgroup")));
}

}  // namespace ar_grpc
