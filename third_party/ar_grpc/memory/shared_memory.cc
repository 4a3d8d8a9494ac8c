// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/memory/shared_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <limits>
#include <string>
#include <utility>

namespace ar_grpc::memory {
namespace {

#ifndef MFD_NOEXEC_SEAL
constexpr unsigned MFD_NOEXEC_SEAL = 8;
#endif

StatusOr<UniqueFd> NewMemfd() {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  UniqueFd fd(memfd_create("ar-grpc", kFlags | MFD_NOEXEC_SEAL));
  // Kernels before 6.3 do not know that flag; some later ones are set to insist on it.
  if (!fd.valid() && errno == EINVAL) fd.reset(memfd_create("ar-grpc", kFlags));
  if (fd.valid()) return fd;
  if (errno == ENOSYS || errno == EPERM || errno == EACCES) {
    return Status(StatusCode::kUnimplemented,
                  "memfd_create is refused here: shared memory needs Linux 3.17 or "
                  "later and a sandbox that allows it");
  }
  return ErrnoStatus(errno, "memfd_create");
}

// Growing a file beyond the limit would end the process by SIGXFSZ.
Status CheckFileSizeLimit(size_t size) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      limit.rlim_cur >= size) {
    return Status();
  }
  return Status(StatusCode::kResourceExhausted,
                "shared memory of " + std::to_string(size) + " bytes is over the file size limit " +
                    std::to_string(limit.rlim_cur) + ": raise it with `ulimit -f unlimited`");
}

}  // namespace

StatusOr<SharedMemory> CreateShared(size_t size) {
  if (Status status = CheckFileSizeLimit(size); !status.ok()) return status;
  StatusOr<UniqueFd> fd = NewMemfd();
  if (!fd.ok()) return fd.status();
  if (size > static_cast<size_t>(std::numeric_limits<off_t>::max()) ||
      ftruncate(fd->get(), static_cast<off_t>(size)) != 0) {
    return Status(StatusCode::kResourceExhausted,
                  "no shared memory of " + std::to_string(size) + " bytes to be had");
  }
  auto data = Map(fd->get(), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE);
  if (!data.ok()) return data.status();
  if (fcntl(fd->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "sealing shared memory");
  }
  return SharedMemory{std::move(*fd), std::move(*data)};
}

Status CheckShared(int fd, uint64_t size) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status(StatusCode::kInternal, "the peer's memory is not sealed against shrinking");
  }
  struct statfs system = {};
  // Huge pages of a pool that runs out are SIGBUS in spite of the seal.
  if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return Status(StatusCode::kInternal, "the peer's memory is not an ordinary memfd");
  }
  struct stat file = {};
  if (fstat(fd, &file) != 0) return ErrnoStatus(errno, "fstat of the peer's memory");
  if (static_cast<uint64_t>(file.st_size) == size) return Status();
  return Status(StatusCode::kInternal, "the peer's memory has " + std::to_string(file.st_size) +
                                           " bytes where it stated " + std::to_string(size));
}

}  // namespace ar_grpc::memory
