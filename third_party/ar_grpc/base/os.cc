// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/base/os.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <system_error>

namespace ar_grpc {
namespace {

std::atomic<uint32_t> fork_count{0};

StatusCode CodeOf(int error) {
  switch (error) {
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC:
    case ENOBUFS:
    case EAGAIN:
    case ETOOMANYREFS:
      return StatusCode::kResourceExhausted;
    case EPERM:
    case EACCES:
      return StatusCode::kPermissionDenied;
    case ENOSYS:
      return StatusCode::kUnimplemented;
    case ENOENT:
    case EPIPE:
    case ECONNREFUSED:
    case ECONNRESET:
      return StatusCode::kUnavailable;
    default:
      return StatusCode::kInternal;
  }
}

std::optional<tcp_info> InfoOfTcp(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
  return info;
}

}  // namespace

std::string DescriptorPath(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

Status ErrnoStatus(int error, const std::string& what) {
  std::string message = what + ": " + std::generic_category().message(error);
  if (error == EMFILE) message += " (descriptor table full: raise `ulimit -n`)";
  return Status(CodeOf(error), std::move(message));
}

StatusOr<std::string> DescriptorTarget(int fd) {
  const std::string path = DescriptorPath(fd);
  std::array<char, 64> target;
  const ssize_t length = readlink(path.c_str(), target.data(), target.size());
  if (length < 0) return ErrnoStatus(errno, "readlink of " + path);
  return std::string(target.data(), static_cast<size_t>(length));
}

StatusOr<std::shared_ptr<uint8_t>> Map(int fd, size_t size, int protection, int flags) {
  void* const memory = mmap(nullptr, size, protection, flags, fd, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "mmap of " + std::to_string(size) + " bytes");
  return std::shared_ptr<uint8_t>(static_cast<uint8_t*>(memory),
                                  [size](uint8_t* start) { munmap(start, size); });
}

StatusOr<UniqueFd> NewWakeFd() {
  UniqueFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "eventfd");
  return fd;
}

void WakeUp(int fd) {
  // Refused only when the counter is full: then it polls readable as it is.
  const uint64_t one = 1;
  while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void ClearWakeUp(int fd) {
  uint64_t taken;
  while (read(fd, &taken, sizeof(taken)) < 0 && errno == EINTR) {
  }
}

std::optional<std::chrono::milliseconds> SinceLastData(int fd) {
  const std::optional<tcp_info> info = InfoOfTcp(fd);
  if (!info.has_value()) return std::nullopt;
  return std::chrono::milliseconds(info->tcpi_last_data_recv);
}

std::optional<std::chrono::microseconds> QuickestRoundTrip(int fd) {
  const std::optional<tcp_info> info = InfoOfTcp(fd);
  // All ones: none has been seen. 0: a kernel before Linux 4.6, which does not know the field.
  if (!info.has_value() || info->tcpi_min_rtt == 0 || info->tcpi_min_rtt == ~uint32_t{0}) {
    return std::nullopt;
  }
  return std::chrono::microseconds(info->tcpi_min_rtt);
}

bool MemoryLockIsLimited() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur == RLIM_INFINITY) return false;
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  // glibc has no function for it, and libcap is not to be needed.
  if (syscall(SYS_capget, &header, data) != 0) return true;
  return (data[CAP_TO_INDEX(CAP_IPC_LOCK)].effective & CAP_TO_MASK(CAP_IPC_LOCK)) == 0;
}

uint32_t ForkCount() {
  static const bool registered = pthread_atfork(nullptr, nullptr, [] { ++fork_count; }) == 0;
  static_cast<void>(registered);
  return fork_count.load(std::memory_order_relaxed);
}

std::mutex& ForkSafeMutex() {
  static std::mutex* const mutex = [] {
    static auto* const created = new std::mutex;
    pthread_atfork([] { created->lock(); }, [] { created->unlock(); }, [] { created->unlock(); });
    return created;
  }();
  return *mutex;
}

}  // namespace ar_grpc
