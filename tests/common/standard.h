// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_COMMON_STANDARD_H_
#define TESTS_COMMON_STANDARD_H_

// What most sources include of the standard library, parsed once for each variant
// (tests/common/cpp.py). No source includes this. A source of the library that forgets what it uses
// does not compile in the wheel's build, which does without it.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#endif  // TESTS_COMMON_STANDARD_H_
