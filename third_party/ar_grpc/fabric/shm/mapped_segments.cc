// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/mapped_segments.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <mutex>
#include <string>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/memory/shared_memory.h"

namespace ar_grpc::fabric::shm {

MappedSegments& MappedSegments::Get() {
  static auto* const table = new MappedSegments;
  return *table;
}

StatusOr<std::shared_ptr<const uint8_t>> MappedSegments::Map(int fd, uint64_t size) {
  if (Status status = memory::CheckShared(fd, size); !status.ok()) return status;
  struct stat file = {};
  if (fstat(fd, &file) != 0) return ErrnoStatus(errno, "fstat of the peer's memory");
  const std::pair<dev_t, ino_t> key(file.st_dev, file.st_ino);
  std::lock_guard<std::mutex> lock(ForkSafeMutex());
  uint64_t bytes = 0;
  for (auto it = mapped_.begin(); it != mapped_.end();) {
    if (it->second.data.expired()) {
      it = mapped_.erase(it);
    } else {
      bytes += it->second.size;
      ++it;
    }
  }
  if (const auto found = mapped_.find(key); found != mapped_.end()) {
    if (std::shared_ptr<const uint8_t> data = found->second.data.lock()) {
      if (found->second.size == size) return data;
      return Status(StatusCode::kInternal, "the peer's memory changed its size");
    }
  }
  if (size > kMostMappedBytes - bytes) {
    return Status(StatusCode::kResourceExhausted, "no address space for " + std::to_string(size) +
                                                      " bytes of a peer's beside " +
                                                      std::to_string(bytes) + " of others");
  }
  auto data = ar_grpc::Map(fd, size, PROT_READ, MAP_SHARED | MAP_NORESERVE);
  if (!data.ok()) return data.status();
  mapped_[key] = {*data, size};
  return std::shared_ptr<const uint8_t>(std::move(*data));
}

}  // namespace ar_grpc::fabric::shm
