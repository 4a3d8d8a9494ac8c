// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_SHM_MEMORY_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_SHM_MEMORY_H_

#include <sys/types.h>

#include <atomic>
#include <map>
#include <memory>
#include <utility>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/ring_connection.h"

// Memory that processes share by descriptor. All of it is a memfd sealed against shrinking, so that
// no access to it can be SIGBUS; where there is no memfd there is no shm fabric.
namespace ar_grpc::fabric::shm {

struct SharedMemory {
  UniqueFd fd;
  std::shared_ptr<uint8_t> data;
};

// A memfd of `size` zeros, mapped for writing. Its size is fixed: F_SEAL_SHRINK|GROW|SEAL.
StatusOr<SharedMemory> CreateShared(size_t size);

// kOk when a peer's descriptor is a memfd of just this size that nobody can shrink any more.
Status CheckShared(int fd, uint64_t size);

// A region that peers may read. They get a descriptor opened for reading, over which no writable
// mapping can be made. F_SEAL_FUTURE_WRITE would say the same of every descriptor, but the kernel
// then refuses to punch holes, and Discard could return nothing to the system.
class MemfdRegion final : public Region {
 public:
  static StatusOr<std::shared_ptr<MemfdRegion>> Create(size_t size);

  uint8_t* data() const override { return memory_.data.get(); }
  size_t size() const override { return size_; }
  Status Discard(size_t offset, size_t length) override;
  // Pages that neither process writes afterwards stay common; what the parent writes may show in a
  // page that the child has not written yet.
  void MakePrivateAfterFork() override;

  int read_only_fd() const { return read_only_.get(); }
  // false in a forked child: there the file holds the parent's bytes, not this process's.
  bool Shareable() const;

 private:
  MemfdRegion(SharedMemory memory, UniqueFd read_only, size_t size);

  const SharedMemory memory_;
  const UniqueFd read_only_;
  const size_t size_;
  const uint32_t fork_count_;
  std::atomic<bool> private_{false};
};

// What this process offers to its peers, and what it has mapped of theirs. Thread-safe.
class RegionTable {
 public:
  static RegionTable& Get();

  void Offer(std::shared_ptr<MemfdRegion> region);
  // nullptr when nothing is offered.
  std::shared_ptr<MemfdRegion> Offered();

  // Maps a peer's region for reading; once per process, however many connections share it. It is
  // unmapped when the last of them is gone.
  StatusOr<RemoteRegion> MapRemote(int fd, uint64_t size);

 private:
  struct Entry {
    std::weak_ptr<const uint8_t> data;
    uint64_t size;
  };
  // Both guarded by ForkSafeMutex().
  std::shared_ptr<MemfdRegion> offered_;
  std::map<std::pair<dev_t, ino_t>, Entry>
      mapped_;  // an inode's number is unique while it is mapped
};

}  // namespace ar_grpc::fabric::shm

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_SHM_MEMORY_H_
