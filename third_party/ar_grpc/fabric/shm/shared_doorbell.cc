// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/shared_doorbell.h"

#include <linux/aio_abi.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "third_party/ar_grpc/fabric/shm/attach.h"
#include "third_party/ar_grpc/memory/shared_memory.h"

namespace ar_grpc::fabric::shm {
namespace {

constexpr size_t kPage = 4096;
// Two ends that do nothing but ring take longer than a century to use it up.
constexpr uint64_t kRings = uint64_t{1} << 62;

Status CheckEventFd(int fd) {
  const Status wrong(StatusCode::kInternal, "the peer passed something else than an eventfd");
  if (fd < 0) return wrong;
  StatusOr<std::string> target = DescriptorTarget(fd);
  if (!target.ok()) return target.status();
  return *target == "anon_inode:[eventfd]" ? Status() : wrong;
}

// Adds to eventfds without write(). A file in memory is read at once, within io_submit, so that the
// one slot of the context is free again when a call ends. Thread-safe.
class EventFdSignal {
 public:
  EventFdSignal() = default;
  ~EventFdSignal() {
    if (context_ != 0) syscall(SYS_io_destroy, context_);
  }

  Status Start() {
    StatusOr<memory::SharedMemory> source = memory::CreateShared(kPage);
    if (!source.ok()) return source.status();
    source_ = std::move(source->fd);
    if (syscall(SYS_io_setup, 1, &context_) == 0) return Status();
    context_ = 0;
    return ErrnoStatus(errno, "io_setup, which wakes the peer");
  }

  Status Signal(int event_fd) {
    iocb read = {};
    read.aio_lio_opcode = IOCB_CMD_PREAD;
    read.aio_fildes = static_cast<uint32_t>(source_.get());
    read.aio_buf = reinterpret_cast<uintptr_t>(&byte_);
    read.aio_nbytes = sizeof(byte_);
    read.aio_flags = IOCB_FLAG_RESFD;
    read.aio_resfd = static_cast<uint32_t>(event_fd);
    iocb* reads[] = {&read};
    std::lock_guard<std::mutex> lock(mu_);
    if (syscall(SYS_io_submit, context_, 1, reads) != 1) return ErrnoStatus(errno, "io_submit");
    io_event event;
    timespec none = {};
    while (syscall(SYS_io_getevents, context_, 1, 1, &event, &none) < 0 && errno == EINTR) {
    }
    return Status();
  }

 private:
  UniqueFd source_;
  std::mutex mu_;
  aio_context_t context_ = 0;
  uint8_t byte_ = 0;  // what is read goes here
};

// Takes one off. 0, or the errno: EAGAIN where nothing is left, which is the peer's own doing.
int TakeOne(int event_fd) {
  uint64_t taken;
  iovec part = {&taken, sizeof(taken)};
  ssize_t size;
  do {
    size = preadv2(event_fd, &part, 1, /*offset=*/-1, RWF_NOWAIT);
  } while (size < 0 && errno == EINTR);
  return size < 0 ? errno : 0;
}

class SharedDoorbell final : public Doorbell {
 public:
  SharedDoorbell(UniqueFd own, UniqueFd peers) : own_(std::move(own)), peers_(std::move(peers)) {}

  Status Start(uint16_t version) {
    for (const int fd : {own_.get(), peers_.get()}) {
      if (Status status = CheckEventFd(fd); !status.ok()) return status;
    }
    edges_.reset(epoll_create1(EPOLL_CLOEXEC));
    if (!edges_.valid()) return ErrnoStatus(errno, "epoll_create1");
    if (Status status = Watch(EPOLL_CTL_ADD); !status.ok()) return status;
    // By taking one of this end's own it is seen whether the kernel can.
    const int error = version == kOldVersion ? EOPNOTSUPP : TakeOne(own_.get());
    Clear();
    if (error == 0 || error == EAGAIN) return Status();
    return signal_.emplace().Start();
  }

  int fd() const override { return edges_.get(); }
  void Clear() override {
    epoll_event event;
    while (epoll_wait(edges_.get(), &event, 1, 0) < 0 && errno == EINTR) {
    }
  }
  void WakePeer() override {
    if (!signal_.has_value()) {
      TakeOne(peers_.get());
    } else {
      static_cast<void>(signal_->Signal(peers_.get()));
    }
  }
  // An eventfd is always readable or writable, and what is ready when it is watched anew is an
  // edge.
  void WakeSelf() override { static_cast<void>(Watch(EPOLL_CTL_MOD)); }

 private:
  Status Watch(int operation) {
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    if (epoll_ctl(edges_.get(), operation, own_.get(), &event) == 0) return Status();
    return ErrnoStatus(errno, "epoll_ctl");
  }

  const UniqueFd own_;
  const UniqueFd peers_;
  UniqueFd edges_;
  std::optional<EventFdSignal> signal_;
};

}  // namespace

StatusOr<UniqueFd> NewBell(uint16_t version) {
  if (version == kOldVersion) return NewWakeFd();
  UniqueFd bell(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE));
  if (!bell.valid()) return ErrnoStatus(errno, "eventfd");
  const ssize_t wrote = write(bell.get(), &kRings, sizeof(kRings));
  if (wrote != sizeof(kRings)) return ErrnoStatus(errno, "eventfd");
  return bell;
}

StatusOr<std::unique_ptr<Doorbell>> NewSharedDoorbell(uint16_t version, UniqueFd own,
                                                      UniqueFd peers) {
  auto doorbell = std::make_unique<SharedDoorbell>(std::move(own), std::move(peers));
  if (Status status = doorbell->Start(version); !status.ok()) return status;
  return std::unique_ptr<Doorbell>(std::move(doorbell));
}

}  // namespace ar_grpc::fabric::shm
