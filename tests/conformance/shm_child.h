// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#ifndef TESTS_CONFORMANCE_SHM_CHILD_H_
#define TESTS_CONFORMANCE_SHM_CHILD_H_

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/shm_support.h"

namespace ar_grpc::fabric::testing {

inline constexpr char kSelf[] = "/proc/self/exe";
// What children and their parent call each other by.
inline constexpr Token kKnownToken = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

// This program in another process, with a role; killed when it goes.
class Child {
 public:
  explicit Child(std::vector<std::string> arguments, const std::string& directory = "") {
    int out[2];
    Check(pipe2(out, O_CLOEXEC) == 0, "pipe");
    arguments.insert(arguments.begin(), kSelf);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      if (!directory.empty()) setenv("AR_GRPC_SHM_DIR", directory.c_str(), 1);
      dup2(out[1], STDOUT_FILENO);
      execv(kSelf, argv.data());
      _exit(127);
    }
    close(out[1]);
    out_.reset(out[0]);
  }
  ~Child() { End(SIGKILL); }

  // The next line that it prints.
  std::string Line() {
    std::string line;
    for (char byte; Readable(out_.get(), 3 * kTimeoutMs) && read(out_.get(), &byte, 1) == 1;) {
      if (byte == '\n') return line;
      line += byte;
    }
    Check(false, "the child ended after '" + line + "'");
    return line;
  }
  void Stop() {
    int status = 0;
    Check(kill(pid_, SIGSTOP) == 0 && waitpid(pid_, &status, WUNTRACED) == pid_, "stopped");
    Check(WIFSTOPPED(status), "stopped");
  }
  void End(int number) {
    if (pid_ <= 0) return;
    kill(pid_, number);
    WaitFor(pid_);
    pid_ = 0;
  }
  void AwaitEnd() { Check(WaitFor(std::exchange(pid_, 0)) == 0, "the child ends well"); }

 private:
  pid_t pid_ = 0;
  UniqueFd out_;
};

}  // namespace ar_grpc::fabric::testing

#endif  // TESTS_CONFORMANCE_SHM_CHILD_H_
