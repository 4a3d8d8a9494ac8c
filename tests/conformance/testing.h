// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_CONFORMANCE_TESTING_H_
#define TESTS_CONFORMANCE_TESTING_H_

#include <poll.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/fabric/fabric.h"

// What the tests of fabrics share: a failed check ends the program.
namespace ar_grpc::fabric::testing {

// Sanitizers slow the program down; the stress tests then do with fewer rounds.
#if defined(__SANITIZE_THREAD__)
inline constexpr int kSlowdown = 20;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowdown = 4;
#else
inline constexpr int kSlowdown = 1;
#endif
inline constexpr int kTimeoutMs = 10000;

inline void Check(bool held, std::string_view what, int line = __builtin_LINE(),
                  const char* file = __builtin_FILE()) {
  if (held) return;
  std::fprintf(stderr, "%s:%d: failed: %.*s\n", file, line, static_cast<int>(what.size()),
               what.data());
  std::_Exit(1);
}

inline void CheckOk(const Status& status, int line = __builtin_LINE(),
                    const char* file = __builtin_FILE()) {
  if (!status.ok()) Check(false, "unexpected status: " + status.message(), line, file);
}

inline void CheckCode(const Status& status, StatusCode code, const std::string& text = "",
                      int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  const bool held = status.code() == code && status.message().find(text) != std::string::npos;
  Check(held,
        "want code " + std::to_string(static_cast<int>(code)) + " '" + text + "', got " +
            std::to_string(static_cast<int>(status.code())) + " '" + status.message() + "'",
        line, file);
}

template <typename T>
T Value(StatusOr<T> result, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  CheckOk(result.status(), line, file);
  return std::move(*result);
}

using MaybeConnection = StatusOr<std::unique_ptr<Connection>>;

// A ConnectDone whose result can be waited for.
class Awaited {
 public:
  ConnectDone done() {
    return [promise = promise_](MaybeConnection result) { promise->set_value(std::move(result)); };
  }
  bool Ready(int timeout_ms) {
    return future_.wait_for(std::chrono::milliseconds(timeout_ms)) == std::future_status::ready;
  }
  MaybeConnection Get(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
    Check(Ready(kTimeoutMs), "no connection and no error in time", line, file);
    return future_.get();
  }

 private:
  std::shared_ptr<std::promise<MaybeConnection>> promise_ =
      std::make_shared<std::promise<MaybeConnection>>();
  std::future<MaybeConnection> future_ = promise_->get_future();
};

inline Status ConnectStatus(Context& context, const std::string& address, const Token& token,
                            int timeout_ms = kTimeoutMs) {
  Awaited connected;
  CheckOk(context.Connect(address, token, timeout_ms, connected.done()));
  return connected.Get().status();
}

struct Pair {
  std::unique_ptr<Connection> connector;
  std::unique_ptr<Connection> acceptor;
};

inline Pair Attach(Context& context, Listener& listener) {
  const Token token = NewToken();
  Awaited accepted;
  Awaited connected;
  listener.Expect(token, accepted.done());
  CheckOk(context.Connect(listener.address(), token, kTimeoutMs, connected.done()));
  Pair pair;
  pair.connector = Value(connected.Get());
  pair.acceptor = Value(accepted.Get());
  return pair;
}

inline Pair Attach(Context& context) { return Attach(context, *Value(context.Listen())); }

inline bool Readable(int fd, int timeout_ms) {
  pollfd polled = {fd, POLLIN, 0};
  return poll(&polled, 1, timeout_ms) == 1;
}

inline void AwaitWake(Connection& connection, int line = __builtin_LINE(),
                      const char* file = __builtin_FILE()) {
  Check(Readable(connection.wake_fd(), kTimeoutMs), "no wake-up in time", line, file);
  connection.ClearWake();
}

inline StatusOr<size_t> WriteText(Connection& connection, const std::string& text) {
  const iovec part = {const_cast<char*>(text.data()), text.size()};
  return connection.Write(&part, 1);
}

inline StatusOr<std::string> ReadText(Connection& connection, size_t size) {
  std::string text(size, '\0');
  StatusOr<size_t> got = connection.Read(text.data(), size);
  if (!got.ok()) return got.status();
  text.resize(*got);
  return text;
}

inline Status GetNow(Connection& connection, uint64_t offset, void* into, size_t size) {
  std::promise<Status> got;
  connection.Get(offset, into, size, [&got](Status status) { got.set_value(std::move(status)); });
  return got.get_future().get();
}

struct Case {
  const char* name;
  std::function<void()> run;
};

inline void RunAll(const std::string& group, const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    const auto start = std::chrono::steady_clock::now();
    one.run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    std::printf("ok %s: %s (%.2f s)\n", group.c_str(), one.name, took.count());
    std::fflush(stdout);
  }
}

}  // namespace ar_grpc::fabric::testing

#endif  // TESTS_CONFORMANCE_TESTING_H_
