// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_EXPECTED_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_EXPECTED_H_

#include <map>
#include <mutex>
#include <utility>

#include "third_party/ar_grpc/fabric/token_attachment.h"

namespace ar_grpc::fabric {

// The tokens that a TokenListener waits for. Thread-safe.
class ExpectedTokens {
 public:
  void Expect(const Token& token, ConnectDone done) {
    std::lock_guard<std::mutex> lock(mu_);
    expected_[token] = std::move(done);
  }

  // What the callback holds is destroyed without the lock.
  void Forget(const Token& token) { Take(token); }

  // The callback of `token`, which is used up by that; empty when nobody expects it.
  ConnectDone Take(const Token& token) {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = expected_.find(token);
    if (found == expected_.end()) return nullptr;
    ConnectDone done = std::move(found->second);
    expected_.erase(found);
    return done;
  }

 private:
  std::mutex mu_;
  std::map<Token, ConnectDone> expected_;
};

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_EXPECTED_H_
