// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_BASE_OS_H_
#define THIRD_PARTY_AR_GRPC_BASE_OS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/status.h"

// What the layers need of the operating system.
namespace ar_grpc {

// Closes a descriptor when it goes.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// "<what>: <errno's text>", with the cure where it is known.
Status ErrnoStatus(int error, const std::string& what);

// Where /proc shows this process's descriptor: to open what it stands for anew.
std::string DescriptorPath(int fd);

// What a descriptor stands for, as /proc names it ("pipe:[1234]", "anon_inode:[eventfd]", a path):
// its first 64 bytes. Asks the kernel alone: fstat() of a file of a FUSE server asks the server.
StatusOr<std::string> DescriptorTarget(int fd);

// Memory that is unmapped when its last owner goes. `fd` -1 is anonymous memory.
StatusOr<std::shared_ptr<uint8_t>> Map(int fd, size_t size, int protection, int flags);

// An eventfd for wake-ups inside of this process: it polls readable from WakeUp until ClearWakeUp.
StatusOr<UniqueFd> NewWakeFd();

// Neither blocks.
void WakeUp(int fd);
void ClearWakeUp(int fd);

// How long ago bytes came last over a connected TCP socket; std::nullopt of anything else.
std::optional<std::chrono::milliseconds> SinceLastData(int fd);
// The quickest round trip that the kernel has seen of a connected TCP socket in the last minutes,
// the connection's first segments mostly among them, which the kernels answer by themselves.
// std::nullopt of anything else, and where the kernel does not say.
std::optional<std::chrono::microseconds> QuickestRoundTrip(int fd);

// Whether this process may lock only so much memory: RLIMIT_MEMLOCK is finite, and it has not the
// capability that lifts it, CAP_IPC_LOCK (capabilities(7)).
bool MemoryLockIsLimited();

// How many forks lie between the first process that asked and this one. What was made at another
// count belongs to an ancestor, as do its threads and the ends of its connections.
uint32_t ForkCount();

// Guards what lives as long as the process. A forked child finds it unlocked and what it guards
// whole, whichever thread forked. Held for a few instructions or one system call at most.
std::mutex& ForkSafeMutex();

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_BASE_OS_H_
