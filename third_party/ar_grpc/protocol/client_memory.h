// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_CLIENT_MEMORY_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_CLIENT_MEMORY_H_

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "third_party/ar_grpc/protocol/hello.h"

namespace ar_grpc::protocol {

// What a server remembers of clients: how long their connections last that are on TCP for now. The
// next connection tries the fabrics again, and a client's calls wait for that, up to seconds where
// what fails is silence. So the tries of a client that fail one after another come further and
// further apart. Bounded; thread-safe.
class ClientMemory {
 public:
  using Clock = std::chrono::steady_clock;
  using Age = std::chrono::milliseconds;
  static constexpr Age kShortest{10000};
  static constexpr Age kLongest{600000};
  static constexpr Age kRemembered = 3 * kLongest;
  static constexpr size_t kMost = 4096;  // the oldest is forgotten

  // The age at which a connection of `client` is retired that could not have a fabric `now`: twice
  // that of the last one where this is the next try. Those that fail side by side are one try.
  // `client` is a NameOf, or a host where no more is known of the client.
  Age AgeOnTcp(const std::string& client, Clock::time_point now);
  // A fabric was had.
  void Forget(const std::string& client);
  static std::string NameOf(const NodeId& client) { return {client.begin(), client.end()}; }

 private:
  struct Failure {
    Age age;
    Clock::time_point since;
  };
  std::mutex mu_;
  std::map<std::string, Failure> failures_;  // guarded by mu_
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_CLIENT_MEMORY_H_
