// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What UBSan and Valgrind must find, for the tests that want nothing of them:
//   wrong_program freed       reads memory that was freed
//   wrong_program undefined   shifts a number by more than its bits

#include <cstdio>
#include <memory>
#include <string>

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  // Volatile: the compiler knows neither.
  volatile int number = 40;
  if (what == "freed") {
    auto kept = std::make_unique<int>(number);
    int* volatile freed = kept.get();
    kept.reset();
    number = *freed;
  } else if (what == "undefined") {
    number = 1 << number;
  } else {
    std::fprintf(stderr, "wrong_program freed | undefined\n");
    return 2;
  }
  std::printf("unseen\n");
  return 0;
}
