// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What control groups leave of the machine, from trees like the kernel's.

#include "third_party/ar_grpc/base/limits.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/common/new_folder.h"
#include "tests/units/expect.h"

namespace {

namespace fs = std::filesystem;

void Put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

void Version2(const fs::path& root) {
  const std::string groups = "0::/outer/inner\n";
  EXPECT(ar_grpc::CoresOfGroups(root, groups) == 0);
  EXPECT(ar_grpc::MemoryOfGroups(root, groups) == UINT64_MAX);
  Put(root / "outer/inner/cpu.max", "max 100000\n");
  Put(root / "outer/inner/memory.max", "max\n");
  EXPECT(ar_grpc::CoresOfGroups(root, groups) == 0);
  EXPECT(ar_grpc::MemoryOfGroups(root, groups) == UINT64_MAX);
  // The group around it counts as well.
  Put(root / "outer/cpu.max", "250000 100000\n");
  Put(root / "outer/memory.max", "1073741824\n");
  EXPECT(ar_grpc::CoresOfGroups(root, groups) == 3);
  EXPECT(ar_grpc::MemoryOfGroups(root, groups) == 1073741824);
  Put(root / "outer/inner/cpu.max", "50000 100000\n");
  Put(root / "outer/inner/memory.max", "4096\n");
  EXPECT(ar_grpc::CoresOfGroups(root, groups) == 1);
  EXPECT(ar_grpc::MemoryOfGroups(root, groups) == 4096);
}

void Version1(const fs::path& root) {
  const std::string groups =
      "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n";
  // Inside of a container only the group itself is mounted, as the root.
  Put(root / "cpu/cpu.cfs_quota_us", "-1\n");
  Put(root / "cpu/cpu.cfs_period_us", "100000\n");
  Put(root / "memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT(ar_grpc::CoresOfGroups(root, groups) == 0);
  EXPECT(ar_grpc::MemoryOfGroups(root, groups) == UINT64_MAX);
  Put(root / "cpu/cpu.cfs_quota_us", "200000\n");
  Put(root / "memory/memory.limit_in_bytes", "536870912\n");
  EXPECT(ar_grpc::CoresOfGroups(root, groups) == 2);
  EXPECT(ar_grpc::MemoryOfGroups(root, groups) == 536870912);
}

}  // namespace

int main() {
  const fs::path root = ar_grpc::testing::NewFolder();
  Version2(root / "2");
  Version1(root / "1");
  EXPECT(ar_grpc::CoresOfGroups(root, "no such line") == 0);
  EXPECT(ar_grpc::UsableCores() >= 1 && ar_grpc::UsableMemory() >= 1 << 20);
  fs::remove_all(root);
  return failures == 0 ? 0 : 1;
}
