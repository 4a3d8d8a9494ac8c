// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Forks: a child that changes nothing of its parent's.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>

#include "tests/conformance/shm_support.h"
#include "third_party/ar_grpc/fabric/shm/peer_segments.h"
#include "third_party/ar_grpc/fabric/shm/shm.h"

namespace ar_grpc::fabric::testing {
namespace {

constexpr size_t kSegmentSize = size_t{1} << 20;

void AForkedChildCannotChangeASegment() {
  const std::shared_ptr<memory::Segment> segment = Value(memory::Segment::Create(kSegmentSize));
  const auto registration = Value(shm::Get().Register(segment, 0, kSegmentSize, Access::kRead));
  std::memset(segment->data(), 1, kSegmentSize);
  const pid_t child = fork();
  if (child == 0) {
    if (segment->Discard(0, 4096).ok()) _exit(2);  // it is the parent's still
    segment->MakePrivateAfterFork();
    if (segment->data()[0] != 1) _exit(3);
    std::memset(segment->data(), 2, kSegmentSize);
    if (segment->data()[kSegmentSize - 1] != 2) _exit(4);
    if (!segment->Discard(0, 4096).ok() || segment->data()[0] != 0) _exit(5);
    segment->data()[0] = 7;
    // The file is not its memory.
    if (segment->Shareable()) _exit(6);
    if (shm::Get().Register(segment, 0, 1, Access::kRead).ok()) _exit(7);
    shm::PeerSegments peer{shm::PeerSocket()};
    if (peer.Export(registration).status().code() != StatusCode::kFailedPrecondition) _exit(8);
    _exit(0);
  }
  Check(WaitFor(child) == 0, "the child has a copy of its own");
  for (size_t i = 0; i < kSegmentSize; ++i)
    Check(segment->data()[i] == 1, "the parent's is as before");
  Check(segment->Shareable(), "the parent goes on sharing");
}

void AForkedChildWithoutACopyCannotWrite() {
  const std::shared_ptr<memory::Segment> segment = Value(memory::Segment::Create(kSegmentSize));
  segment->data()[0] = 1;
  const pid_t child = fork();
  if (child == 0) {
    for (int fd = 3; fd < 1024; ++fd) close(fd);  // so that the copy cannot be made
    signal(SIGSEGV, [](int) { _exit(42); });
    segment->MakePrivateAfterFork();
    *static_cast<volatile uint8_t*>(segment->data()) = 2;
    _exit(0);
  }
  Check(WEXITSTATUS(WaitFor(child)) == 42, "a fault, no write");
  Check(segment->data()[0] == 1, "the parent's is as before");
}

void WithoutMemfdItIsUnavailable() {
  const pid_t child = fork();
  if (child == 0) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {std::size(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      _exit(0);  // a sandbox that allows no other in it
    }
    CheckCode(shm::Get().Available(), StatusCode::kUnimplemented, "memfd_create is refused");
    CheckCode(memory::Segment::Create(4096).status(), StatusCode::kUnimplemented);
    _exit(0);
  }
  Check(WaitFor(child) == 0, "the status says why");
}

void AForkedChildLeavesConnectionsAlone() {
  const auto segment = Value(memory::Segment::Create(kSegmentSize));
  const auto registration = Value(shm::Get().Register(segment, 0, kSegmentSize, Access::kRead));
  std::shared_ptr<TokenListener> listener = ListenHere();
  Pair pair = AttachTo(*listener);
  Introduction introduction(shm::Get(), shm::Get());
  const pid_t child = fork();
  if (child == 0) {
    for (const Status& status :
         {WriteText(*pair.connector, "x").status(), pair.connector->Export(registration).status(),
          pair.connector->Map("", 0, 1).status()}) {
      if (status.code() != StatusCode::kFailedPrecondition) _exit(2);
    }
    pair.connector->Close(nullptr);
    pair = Pair();
    for (auto& attachment : introduction.attachments) attachment.reset();
    listener.reset();
    _exit(0);
  }
  Check(WaitFor(child) == 0, "the child ends well");
  Check(Value(WriteText(*pair.connector, "alive")) == 5, "written");
  Check(Value(ReadText(*pair.acceptor, 5)) == "alive", "read");
  const Key key = Value(pair.acceptor->Export(registration));
  uint8_t byte = 1;
  CheckOk(GetNow(*pair.connector, key, 0, &byte, 1));
  Check(byte == 0, "the segment's");
  AttachTo(*listener);
  introduction.Run();
  CheckOk(introduction.Take(0).status());
  CheckOk(introduction.Take(1).status());
}

// ThreadSanitizer ends a child that starts threads after a fork of a threaded process.
void AForkedChildMayHaveItsOwn() {
#if !defined(__SANITIZE_THREAD__)
  const Pair before = Attach(shm::Get());
  const pid_t child = fork();
  if (child == 0) {
    const Pair pair = Attach(shm::Get());
    const auto segment = Value(memory::Segment::Create(4096));
    segment->data()[0] = 7;
    const auto registration = Value(shm::Get().Register(segment, 0, 4096, Access::kRead));
    const Key key = Value(pair.connector->Export(registration));
    uint8_t byte = 0;
    CheckOk(GetNow(*pair.acceptor, key, 0, &byte, 1));
    const bool wrote = Value(WriteText(*pair.connector, "child")) == 5;
    _exit(wrote && byte == 7 && Value(ReadText(*pair.acceptor, 5)) == "child" ? 0 : 2);
  }
  Check(WaitFor(child) == 0, "the child connects");
  Attach(shm::Get());
#endif
}

}  // namespace

std::vector<Case> ShmUnthreadedCases() {
  return {
      {"a forked child cannot change a segment", AForkedChildCannotChangeASegment},
      {"a forked child without a copy cannot write", AForkedChildWithoutACopyCannotWrite},
      {"without memfd it is unavailable", WithoutMemfdItIsUnavailable},
  };
}

std::vector<Case> ShmForkCases() {
  return {
      {"a forked child leaves connections alone", AForkedChildLeavesConnectionsAlone},
      {"a forked child may have its own", AForkedChildMayHaveItsOwn},
  };
}

}  // namespace ar_grpc::fabric::testing
