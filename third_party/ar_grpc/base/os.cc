// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/base/os.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
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

StatusOr<WakePipe> NewWakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) return ErrnoStatus(errno, "pipe2");
  WakePipe pipe;
  pipe.passed.reset(fds[0]);
  const UniqueFd other(fds[1]);
  // A page does, and less counts against the user's limit on pipes; where it is refused, so be it.
  fcntl(fds[0], F_SETPIPE_SZ, 4096);
  StatusOr<UniqueFd> own = OpenWakePipe(fds[0]);
  if (!own.ok()) return own.status();
  pipe.own = std::move(*own);
  return pipe;
}

StatusOr<UniqueFd> OpenWakePipe(int passed) {
  const Status wrong(StatusCode::kInternal, "the peer passed something else than a pipe");
  if (passed < 0) return wrong;
  StatusOr<std::string> target = DescriptorTarget(passed);
  if (!target.ok()) return target.status();
  if (target->rfind("pipe:[", 0) != 0) return wrong;
  const std::string path = DescriptorPath(passed);
  UniqueFd own(open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!own.valid()) return ErrnoStatus(errno, "opening a pipe through " + path);
  return own;
}

void WakeUp(int fd) {
  // An eventfd takes just eight bytes, a pipe any. Refused only when it is full: then it polls
  // readable as it is.
  const uint64_t one = 1;
  while (write(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

void ClearWakeUp(int fd) {
  std::array<char, 64 * 1024> taken;
  while (read(fd, taken.data(), taken.size()) < 0 && errno == EINTR) {
  }
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
