// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_CONFORMANCE_TESTING_H_
#define TESTS_CONFORMANCE_TESTING_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/os.h"
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

// What is to hold soon: fabrics do not promise that the other end sees a write at once.
inline void Eventually(std::string_view what, const std::function<bool()>& holds,
                       int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTimeoutMs);
  for (int round = 0; !holds(); ++round) {
    Check(std::chrono::steady_clock::now() < end, what, line, file);
    if (round > 100) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Both ends of an attachment, whose frames this carries. The end 0 is the connector, 1 the
// acceptor.
class Introduction {
 public:
  // What is done to a frame on its way to an end; empty: it is lost.
  using Forge = std::function<std::vector<std::string>(int to, std::string frame)>;

  Introduction(Context& accepting, Context& connecting) {
    // The connector first: the acceptor's events may run before Accept returns.
    attachments[0] = Value(connecting.Connect(Events(0)));
    attachments[1] = Value(accepting.Accept(Events(1)));
  }

  // Carries frames until both ends are done, or one of them is where the other is given up, or for
  // `timeout_ms`. Whether all that are there are done.
  bool Run(int timeout_ms = kTimeoutMs, const Forge& forge = nullptr) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
    std::unique_lock<std::mutex> lock(state_->mu);
    while (true) {
      if (!state_->frames.empty()) {
        auto [to, frame] = std::move(state_->frames.front());
        state_->frames.pop_front();
        lock.unlock();
        std::vector<std::string> forged = {frame};
        if (forge) forged = forge(to, std::move(frame));
        for (const std::string& one : forged) {
          if (attachments[to]) attachments[to]->TakeFrame(one);
        }
        lock.lock();
        continue;
      }
      if ((!attachments[0] || state_->results[0]) && (!attachments[1] || state_->results[1])) {
        return true;
      }
      if (state_->changed.wait_until(lock, end) == std::cv_status::timeout &&
          std::chrono::steady_clock::now() >= end) {
        return false;
      }
    }
  }

  bool Done(int end) {
    std::lock_guard<std::mutex> lock(state_->mu);
    return state_->results[end].has_value();
  }
  MaybeConnection Take(int end, int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
    std::lock_guard<std::mutex> lock(state_->mu);
    Check(state_->results[end].has_value(), "no connection and no error in time", line, file);
    return std::move(*state_->results[end]);
  }
  // The frames that wait to be carried, as (to, frame).
  std::deque<std::pair<int, std::string>> Frames() {
    std::lock_guard<std::mutex> lock(state_->mu);
    return state_->frames;
  }

  std::unique_ptr<Attachment> attachments[2];

 private:
  // Outlives this: an event may be under way.
  struct State {
    std::mutex mu;
    std::condition_variable changed;
    std::deque<std::pair<int, std::string>> frames;
    std::optional<MaybeConnection> results[2];
  };

  AttachEvents Events(int end) {
    AttachEvents events;
    events.send = [state = state_, end](std::string frame) {
      Check(frame.size() <= kLargestAttachFrame, "a frame's size");
      std::lock_guard<std::mutex> lock(state->mu);
      state->frames.emplace_back(1 - end, std::move(frame));
      state->changed.notify_all();
    };
    events.done = [state = state_, end](MaybeConnection result) {
      std::lock_guard<std::mutex> lock(state->mu);
      Check(!state->results[end].has_value(), "done twice");
      state->results[end].emplace(std::move(result));
      state->changed.notify_all();
    };
    return events;
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

struct Pair {
  std::unique_ptr<Connection> connector;
  std::unique_ptr<Connection> acceptor;
};

inline Pair Attach(Context& accepting, Context& connecting, int line = __builtin_LINE(),
                   const char* file = __builtin_FILE()) {
  Introduction introduction(accepting, connecting);
  introduction.Run();
  Pair pair;
  pair.connector = Value(introduction.Take(0, line, file), line, file);
  pair.acceptor = Value(introduction.Take(1, line, file), line, file);
  return pair;
}

inline Pair Attach(Context& context, int line = __builtin_LINE(),
                   const char* file = __builtin_FILE()) {
  return Attach(context, context, line, file);
}

inline bool Readable(int fd, int timeout_ms) {
  pollfd polled = {fd, POLLIN, 0};
  return poll(&polled, 1, timeout_ms) == 1;
}

// A TCP socket that listens on 127.0.0.1.
struct LoopbackListener {
  UniqueFd socket;
  sockaddr_in address;
};
inline LoopbackListener ListenOnLoopback(int backlog) {
  LoopbackListener made{UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), {}};
  made.address.sin_family = AF_INET;
  made.address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(made.address);
  auto* const any = reinterpret_cast<sockaddr*>(&made.address);
  Check(bind(made.socket.get(), any, size) == 0 && listen(made.socket.get(), backlog) == 0 &&
            getsockname(made.socket.get(), any, &size) == 0,
        "a listener");
  return made;
}

// Both ends of a TCP connection over 127.0.0.1.
struct LoopbackTcp {
  LoopbackTcp() : client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const LoopbackListener listener = ListenOnLoopback(/*backlog=*/1);
    Check(connect(client.get(), reinterpret_cast<const sockaddr*>(&listener.address),
                  sizeof(listener.address)) == 0,
          "connected");
    server = UniqueFd(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Check(server.valid(), "accepted");
  }
  UniqueFd client;
  UniqueFd server;
};

inline void AwaitWake(Connection& connection, int line = __builtin_LINE(),
                      const char* file = __builtin_FILE()) {
  Check(Readable(connection.wake_fd(), kTimeoutMs), "no wake-up in time", line, file);
  connection.ClearWake();
}

inline StatusOr<size_t> WriteText(Connection& connection, const std::string& text) {
  const iovec part = {const_cast<char*>(text.data()), text.size()};
  return connection.Write(&part, 1);
}

// Writes all of it, and sleeps while there is no room: what the peer has read is room for a writer
// only once the peer has said so.
inline void WriteAll(Connection& connection, const void* from, size_t size,
                     int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
  const auto* const bytes = static_cast<const char*>(from);
  for (size_t written = 0; written < size;) {
    const iovec part = {const_cast<char*>(bytes + written), size - written};
    const size_t wrote = Value(connection.Write(&part, 1), line, file);
    written += wrote;
    if (wrote == 0 && Value(connection.ArmWrite(), line, file)) AwaitWake(connection, line, file);
  }
}

inline StatusOr<std::string> ReadText(Connection& connection, size_t size) {
  std::string text(size, '\0');
  StatusOr<size_t> got = connection.Read(text.data(), size);
  if (!got.ok()) return got.status();
  text.resize(*got);
  return text;
}

// The end of a one-sided operation, which can be waited for.
class Ended {
 public:
  Done done() {
    return [promise = promise_](Status status) { promise->set_value(std::move(status)); };
  }
  bool Ready(int timeout_ms) {
    return future_.wait_for(std::chrono::milliseconds(timeout_ms)) == std::future_status::ready;
  }
  Status Wait(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
    Check(Ready(3 * kTimeoutMs), "a one-sided operation does not end", line, file);
    return future_.get();
  }

 private:
  std::shared_ptr<std::promise<Status>> promise_ = std::make_shared<std::promise<Status>>();
  std::future<Status> future_ = promise_->get_future();
};

inline Status GetNow(Connection& connection, const Key& key, uint64_t offset, void* into,
                     size_t size) {
  Ended ended;
  connection.Get(key, offset, into, size, nullptr, ended.done());
  return ended.Wait();
}

inline Status PutNow(Connection& connection, const Key& key, uint64_t offset, const void* from,
                     size_t size) {
  Ended ended;
  connection.Put(key, offset, from, size, nullptr, ended.done());
  return ended.Wait();
}

// The byte that belongs at a position: any that is lost, doubled or moved shows.
inline uint8_t Pattern(uint64_t position, uint64_t seed) {
  return static_cast<uint8_t>(((position + seed) * 0x9E3779B97F4A7C15u) >> 56);
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
