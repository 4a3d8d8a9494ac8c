// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CLOSED_IN_CHILD_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CLOSED_IN_CHILD_H_

#include <atomic>
#include <cstdint>
#include <mutex>

namespace ar_grpc::fabric::verbs {

// No fork of this process begins while it is held: a library opens or closes a device's descriptor,
// or maps and unmaps what the kernel shares with it. A fork in the midst of that would see, and
// leave out of the child, memory that is another's by then. Held around such calls alone; nothing
// is locked within.
std::unique_lock<std::mutex> HoldOffForks();

// A descriptor of a device that forked children do not keep, nor what is mapped by it. The kernel
// holds a process's queue pairs, and all memory that they pin, as long as anybody has either: a
// child that outlives its parent would go on answering the parent's peers from memory that nobody
// writes any more. Mappings are those of all that the process has of RDMA devices, whoever made
// them: in a child none of them is of use.
class ClosedInChild {
 public:
  ClosedInChild() = default;
  // Destroys nothing in a child.
  ~ClosedInChild() { Reset(); }
  ClosedInChild(const ClosedInChild&) = delete;

  // From now on; before `fd` is closed it has to be Reset. Both while forks are held off, and the
  // descriptor is made or closed. Where more than kMost are meant, children keep the last ones.
  void Set(int fd);
  void Reset();

  static constexpr int kMost = 512;

 private:
  std::atomic<int>* place_ = nullptr;
  uint32_t fork_count_ = 0;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_CLOSED_IN_CHILD_H_
