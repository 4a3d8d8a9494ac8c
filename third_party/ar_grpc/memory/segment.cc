// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/os.h"

namespace ar_grpc::memory {
namespace {

uint64_t NextId() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Segment::Segment(SharedMemory memory, UniqueFd read_only, size_t size)
    : memory_(std::move(memory)),
      read_only_(std::move(read_only)),
      size_(size),
      id_(NextId()),
      fork_count_(ForkCount()) {}

Status SparsePagesGuaranteed() {
  std::ifstream overcommit("/proc/sys/vm/overcommit_memory");
  int mode = 0;
  if (!(overcommit >> mode) || mode != 2) return Status();
  return Status(
      StatusCode::kUnimplemented,
      "vm.overcommit_memory is 2: a page of sparse shared memory may be refused when it is "
      "touched, which would end the process");
}

StatusOr<std::shared_ptr<Segment>> Segment::Create(size_t size) {
  if (size == 0) return Status(StatusCode::kInvalidArgument, "a segment has at least one byte");
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (size > std::numeric_limits<size_t>::max() - page) {
    return Status(StatusCode::kResourceExhausted,
                  "no shared memory of " + std::to_string(size) + " bytes to be had");
  }
  size = (size + page - 1) / page * page;
  StatusOr<SharedMemory> memory = CreateShared(size);
  if (!memory.ok()) return memory.status();
  madvise(memory->data.get(), size, MADV_HUGEPAGE);  // a hint; many systems allow none
  const std::string path = DescriptorPath(memory->fd.get());
  UniqueFd read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!read_only.valid()) return ErrnoStatus(errno, "opening shared memory through " + path);
  // So that nobody opens it for writing through /proc by accident.
  if (fchmod(memory->fd.get(), 0400) != 0) return ErrnoStatus(errno, "fchmod of shared memory");
  return std::shared_ptr<Segment>(new Segment(std::move(*memory), std::move(read_only), size));
}

bool Segment::Shareable() const { return ForkCount() == fork_count_ && !private_; }

std::optional<uint64_t> Segment::OffsetOf(const void* data, size_t size) const {
  const uintptr_t start = reinterpret_cast<uintptr_t>(this->data());
  const uintptr_t at = reinterpret_cast<uintptr_t>(data);
  if (at < start || at - start > size_ || size > size_ - (at - start)) return std::nullopt;
  return at - start;
}

Status Segment::Discard(size_t offset, size_t length) {
  if (offset > size_ || length > size_ - offset) {
    return Status(StatusCode::kInvalidArgument, "the range is not within the segment");
  }
  if (length == 0) return Status();
  if (private_) {
    // This process's copy. The file's bytes, which are the parent's, must not show in its place.
    void* const zeros = mmap(data() + offset, length, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return zeros == MAP_FAILED ? ErrnoStatus(errno, "mmap") : Status();
  }
  if (!Shareable()) {
    return Status(StatusCode::kFailedPrecondition, "the segment belongs to the parent process");
  }
  if (fallocate(memory_.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                static_cast<off_t>(offset), static_cast<off_t>(length)) != 0) {
    return ErrnoStatus(errno, "returning shared memory to the system");
  }
  return Status();
}

void Segment::MakePrivateAfterFork() {
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

}  // namespace ar_grpc::memory
