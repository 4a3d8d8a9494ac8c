// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <limits>
#include <mutex>
#include <string>
#include <utility>

namespace ar_grpc::fabric::shm {
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
                  "memfd_create is refused here: the shared-memory fabric needs Linux 3.17 or "
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

MemfdRegion::MemfdRegion(SharedMemory memory, UniqueFd read_only, size_t size)
    : memory_(std::move(memory)),
      read_only_(std::move(read_only)),
      size_(size),
      fork_count_(ForkCount()) {}

StatusOr<std::shared_ptr<MemfdRegion>> MemfdRegion::Create(size_t size) {
  if (size == 0) return Status(StatusCode::kInvalidArgument, "a region has at least one byte");
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (size > std::numeric_limits<size_t>::max() - page) {
    return Status(StatusCode::kResourceExhausted,
                  "no shared memory of " + std::to_string(size) + " bytes to be had");
  }
  size = (size + page - 1) / page * page;
  StatusOr<SharedMemory> memory = CreateShared(size);
  if (!memory.ok()) return memory.status();
  madvise(memory->data.get(), size, MADV_HUGEPAGE);  // a hint; many systems allow none
  const std::string path = "/proc/self/fd/" + std::to_string(memory->fd.get());
  UniqueFd read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!read_only.valid()) return ErrnoStatus(errno, "opening shared memory through " + path);
  // So that nobody opens it for writing through /proc by accident.
  if (fchmod(memory->fd.get(), 0400) != 0) return ErrnoStatus(errno, "fchmod of shared memory");
  return std::shared_ptr<MemfdRegion>(
      new MemfdRegion(std::move(*memory), std::move(read_only), size));
}

bool MemfdRegion::Shareable() const { return ForkCount() == fork_count_ && !private_; }

Status MemfdRegion::Discard(size_t offset, size_t length) {
  if (offset > size_ || length > size_ - offset) {
    return Status(StatusCode::kInvalidArgument, "the range is not within the region");
  }
  if (length == 0) return Status();
  if (private_) {
    // This process's copy. The file's bytes, which are the parent's, must not show in its place.
    void* const zeros = mmap(data() + offset, length, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return zeros == MAP_FAILED ? ErrnoStatus(errno, "mmap") : Status();
  }
  if (!Shareable()) {
    return Status(StatusCode::kFailedPrecondition, "the region belongs to the parent process");
  }
  if (fallocate(memory_.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(offset), static_cast<off_t>(length)) != 0) {
    return ErrnoStatus(errno, "returning shared memory to the system");
  }
  return Status();
}

void MemfdRegion::MakePrivateAfterFork() {
  private_ = true;
  if (mmap(data(), size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE | MAP_FIXED,
           memory_.fd.get(), 0) != MAP_FAILED) {
    return;
  }
  // No memory at all is better than the parent's.
  if (mmap(data(), size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
           0) == MAP_FAILED) {
    mprotect(data(), size_, PROT_NONE);
  }
}

RegionTable& RegionTable::Get() {
  static auto* const table = new RegionTable;
  return *table;
}

void RegionTable::Offer(std::shared_ptr<MemfdRegion> region) {
  // The one before is destroyed after the lock is released.
  std::lock_guard<std::mutex> lock(ForkSafeMutex());
  offered_.swap(region);
}

std::shared_ptr<MemfdRegion> RegionTable::Offered() {
  std::lock_guard<std::mutex> lock(ForkSafeMutex());
  return offered_ && offered_->Shareable() ? offered_ : nullptr;
}

StatusOr<RemoteRegion> RegionTable::MapRemote(int fd, uint64_t size) {
  if (Status status = CheckShared(fd, size); !status.ok()) return status;
  struct stat file = {};
  if (fstat(fd, &file) != 0) return ErrnoStatus(errno, "fstat of the peer's memory");
  const std::pair<dev_t, ino_t> key(file.st_dev, file.st_ino);
  std::lock_guard<std::mutex> lock(ForkSafeMutex());
  for (auto it = mapped_.begin(); it != mapped_.end();) {
    it = it->second.data.expired() ? mapped_.erase(it) : std::next(it);
  }
  if (const auto found = mapped_.find(key); found != mapped_.end()) {
    if (std::shared_ptr<const uint8_t> data = found->second.data.lock()) {
      if (found->second.size == size) return RemoteRegion{std::move(data), size};
      return Status(StatusCode::kInternal, "the peer's memory changed its size");
    }
  }
  auto data = Map(fd, size, PROT_READ, MAP_SHARED | MAP_NORESERVE);
  if (!data.ok()) return data.status();
  mapped_[key] = {*data, size};
  return RemoteRegion{std::move(*data), size};
}

}  // namespace ar_grpc::fabric::shm
