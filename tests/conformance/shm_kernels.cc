// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Kernels that lack what wakes a peer, as a filter of system calls shows them.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "tests/conformance/shm_child.h"
#include "tests/conformance/shm_support.h"

namespace ar_grpc::fabric::testing {
namespace {

// From here on this thread, and those that it starts, find that `call` fails so. To be used before
// there is a reactor.
void Lack(uint32_t call, uint32_t error) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog filter = {sizeof(program) / sizeof(program[0]), program};
  Check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "no new privileges");
  Check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0, "a filter");
}

void AKernelBefore58Wakes() {
  Child child({"before-5.8"});
  child.AwaitEnd();
}

void AKernelThatCannotWakeIsAStatus() {
  Child child({"before-5.8-without-aio"});
  child.AwaitEnd();
}

}  // namespace

void RunBefore58(bool with_aio) {
  Lack(SYS_preadv2, EOPNOTSUPP);
  uint64_t taken;
  iovec part = {&taken, sizeof(taken)};
  Check(preadv2(STDIN_FILENO, &part, 1, -1, RWF_NOWAIT) < 0 && errno == EOPNOTSUPP, "lacks it");
  if (!with_aio) Lack(SYS_io_setup, ENOSYS);
  const std::shared_ptr<TokenListener> listener = ListenHere();
  if (!with_aio) {
    CheckCode(ConnectNow(FrameFor(listener->address(), NewToken())).status(),
              StatusCode::kUnimplemented, "io_setup");
    return;
  }
  Pair pair = AttachTo(*listener);
  for (int i = 0; i < 1000; ++i) {
    for (const bool back : {false, true}) {
      Connection& from = *(back ? pair.acceptor : pair.connector);
      Connection& to = *(back ? pair.connector : pair.acceptor);
      Check(Value(to.ArmRead()) && !Readable(to.wake_fd(), 0), "sleeps");
      Check(Value(WriteText(from, "x")) == 1, "written");
      AwaitWake(to);
      Check(Value(ReadText(to, 10)) == "x", "read");
    }
  }
}

std::vector<Case> ShmKernelCases() {
  return {
      {"a kernel before 5.8 wakes", AKernelBefore58Wakes},
      {"a kernel that cannot wake is a status", AKernelThatCannotWakeIsAStatus},
  };
}

}  // namespace ar_grpc::fabric::testing
