// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/old_doorbell.h"

#include <linux/aio_abi.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <string>
#include <utility>

#include "third_party/ar_grpc/memory/shared_memory.h"

namespace ar_grpc::fabric::shm {
namespace {

constexpr size_t kPage = 4096;

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
    return ErrnoStatus(errno, "io_setup, which wakes peers of the release before");
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

class OldDoorbell final : public Doorbell {
 public:
  OldDoorbell(UniqueFd own, UniqueFd peers) : own_(std::move(own)), peers_(std::move(peers)) {}

  Status Start() {
    for (const int fd : {own_.get(), peers_.get()}) {
      if (Status status = CheckEventFd(fd); !status.ok()) return status;
    }
    edges_.reset(epoll_create1(EPOLL_CLOEXEC));
    if (!edges_.valid()) return ErrnoStatus(errno, "epoll_create1");
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLET;
    if (epoll_ctl(edges_.get(), EPOLL_CTL_ADD, own_.get(), &event) != 0) {
      return ErrnoStatus(errno, "epoll_ctl");
    }
    return signal_.Start();
  }

  int fd() const override { return edges_.get(); }
  void Clear() override {
    epoll_event event;
    while (epoll_wait(edges_.get(), &event, 1, 0) < 0 && errno == EINTR) {
    }
  }
  void WakePeer() override { static_cast<void>(signal_.Signal(peers_.get())); }
  void WakeSelf() override { static_cast<void>(signal_.Signal(own_.get())); }

 private:
  const UniqueFd own_;
  const UniqueFd peers_;
  UniqueFd edges_;
  EventFdSignal signal_;
};

}  // namespace

StatusOr<std::unique_ptr<Doorbell>> NewOldDoorbell(UniqueFd own, UniqueFd peers) {
  auto doorbell = std::make_unique<OldDoorbell>(std::move(own), std::move(peers));
  if (Status status = doorbell->Start(); !status.ok()) return status;
  return std::unique_ptr<Doorbell>(std::move(doorbell));
}

}  // namespace ar_grpc::fabric::shm
