// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_VERBS_PAIR_H_
#define TESTS_VERBS_PAIR_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "third_party/ar_grpc/fabric/fabric.h"

// What the programs of this folder share: a failed check ends the program.
namespace ar_grpc::fabric::verbs::testing {

inline constexpr std::chrono::seconds kPatience(30);

inline void Check(bool held, const std::string& what, int line = __builtin_LINE(),
                  const char* file = __builtin_FILE()) {
  if (held) return;
  std::fprintf(stderr, "%s:%d: failed: %s\n", file, line, what.c_str());
  std::_Exit(1);
}

inline void CheckCode(const Status& status, StatusCode code, const std::string& text = "",
                      int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  Check(status.code() == code && status.message().find(text) != std::string::npos,
        "want code " + std::to_string(static_cast<int>(code)) + " '" + text + "', got " +
            std::to_string(static_cast<int>(status.code())) + " '" + status.message() + "'",
        line, file);
}

template <typename T>
T Value(StatusOr<T> result, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  CheckCode(result.status(), StatusCode::kOk, "", line, file);
  return std::move(*result);
}

// A value that comes once, perhaps on another thread.
template <typename T>
class Awaited {
 public:
  void Set(T value) const { promise_->set_value(std::move(value)); }
  bool Ready() const {
    return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  T Get(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
    Check(future_.wait_for(kPatience) == std::future_status::ready, "nothing came", line, file);
    return future_.get();
  }

 private:
  std::shared_ptr<std::promise<T>> promise_ = std::make_shared<std::promise<T>>();
  std::future<T> future_ = promise_->get_future();
};

// One end in the making: its frames, and what becomes of it.
class End {
 public:
  AttachEvents events() {
    return {[shared = shared_](std::string frame) {
              std::lock_guard<std::mutex> lock(shared->mu);
              shared->frames.push_back(std::move(frame));
              shared->changed.notify_all();
            },
            [shared = shared_](StatusOr<std::unique_ptr<Connection>> made) {
              std::lock_guard<std::mutex> lock(shared->mu);
              Check(!shared->made.has_value(), "an end was made twice");
              shared->made = std::move(made);
              shared->changed.notify_all();
            }};
  }
  // The next frame; nullopt once the end is made and has sent all.
  std::optional<std::string> NextFrame() {
    std::unique_lock<std::mutex> lock(shared_->mu);
    const bool came = shared_->changed.wait_for(
        lock, kPatience, [this] { return !shared_->frames.empty() || shared_->made.has_value(); });
    Check(came, "no frame came");
    if (shared_->frames.empty()) return std::nullopt;
    std::string frame = std::move(shared_->frames.front());
    shared_->frames.pop_front();
    return frame;
  }
  bool made() const {
    std::lock_guard<std::mutex> lock(shared_->mu);
    return shared_->made.has_value();
  }
  StatusOr<std::unique_ptr<Connection>> Take() {
    std::unique_lock<std::mutex> lock(shared_->mu);
    const bool came =
        shared_->changed.wait_for(lock, kPatience, [this] { return shared_->made.has_value(); });
    Check(came, "no end was made");
    return std::move(*shared_->made);
  }

 private:
  struct Shared {
    std::mutex mu;
    std::condition_variable changed;
    std::deque<std::string> frames;
    std::optional<StatusOr<std::unique_ptr<Connection>>> made;
  };
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

inline Status GetNow(Connection& connection, const Key& key, uint64_t offset, void* into,
                     size_t size) {
  Awaited<Status> got;
  connection.Get(key, offset, into, size, nullptr, [&got](Status status) { got.Set(status); });
  return got.Get();
}

inline Status PutNow(Connection& connection, const Key& key, uint64_t offset, const void* from,
                     size_t size) {
  Awaited<Status> got;
  connection.Put(key, offset, from, size, nullptr, [&got](Status status) { got.Set(status); });
  return got.Get();
}

inline void CloseNow(Connection& connection) {
  Awaited<bool> closed;
  connection.Close([&closed] { closed.Set(true); });
  closed.Get();
}

// Bytes that differ by their offset.
inline uint8_t ByteAt(uint64_t offset) { return static_cast<uint8_t>(offset * 2654435761u >> 13); }

// Those that are open.
inline size_t Descriptors() {
  const auto fds = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(fds), end(fds)));
}

}  // namespace ar_grpc::fabric::verbs::testing

#endif  // TESTS_VERBS_PAIR_H_
