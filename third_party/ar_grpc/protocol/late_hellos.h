// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_LATE_HELLOS_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_LATE_HELLOS_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace ar_grpc::protocol {

// Hellos that a server found when their clients had given up, because its process had stood still.
// Such a client comes again without a hello, and nothing in HTTP/2 says later that it could do
// better: its connection would stay plain for its life. So the server retires as many plain
// connections of that host as it found hellos, and the clients say hello again.
//
// A plain connection carries no node's id, so clients are told apart by host alone, and a
// stranger's connection from the same host may be retired in a client's stead.
//
// Connections are accepted in the order in which they were made, so a hello is known here before
// the connection that followed it; not where several listeners share a port (SO_REUSEPORT), each
// with a queue of its own. Bounded; thread-safe.
class LateHellos {
 public:
  using Clock = std::chrono::steady_clock;
  // Who gave up connects at once, and has 20 s for all of it (gRPC's connection timeout).
  static constexpr std::chrono::seconds kRemembered{20};
  static constexpr size_t kMost = 4096;  // hosts; the oldest is forgotten

  // A client of `host` said a hello, and no longer waits for the answer.
  void Found(const std::string& host, Clock::time_point now);
  // Whether a connection of `host` that began without a hello is to be retired. One for each hello.
  bool TakeOne(const std::string& host, Clock::time_point now);

 private:
  struct Hellos {
    size_t count = 0;
    Clock::time_point last;
  };
  std::mutex mu_;
  std::map<std::string, Hellos> found_;  // guarded by mu_
};

// Whether an accepted TCP connection holds a hello that nobody has read for so long that its client
// has given up, whose handshake takes `deadline`. Reads nothing.
bool HoldsLateHello(int fd, std::chrono::milliseconds deadline);

// The host of a peer's address as gRPC writes it, such as "ipv4:10.0.0.1:2222": without the port.
std::string HostOf(const std::string& address);

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_LATE_HELLOS_H_
