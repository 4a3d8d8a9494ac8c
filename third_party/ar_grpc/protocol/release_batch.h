// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_RELEASE_BATCH_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_RELEASE_BATCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "third_party/ar_grpc/protocol/link.h"

namespace ar_grpc::protocol {

// The releases that one thread has not told of yet. A sender sleeps by the time that the responses
// of a step are read, and to wake it takes a thread about as long as copying 64 KiB. So a thread
// that reads many tensors in a turn tells of all of them at its end, and the sender wakes once.
//
// The thread that makes a batch must call PostAll before it sleeps: until then the senders hold
// what was read. Thread-compatible: it works in the thread that made it, and one a thread.
class ReleaseBatch {
 public:
  // What senders hold because of a batch, in bytes, at most: with more it is posted.
  static constexpr uint64_t kMostBytes = uint64_t{1} << 20;

  ReleaseBatch();
  // Posts.
  ~ReleaseBatch();
  ReleaseBatch(const ReleaseBatch&) = delete;
  ReleaseBatch& operator=(const ReleaseBatch&) = delete;

  // Tells the peer of `link` that it may let go the `bytes` that it holds under `ticket`: at once,
  // or with the rest of the calling thread's batch. false: as Link::PostRelease.
  static bool Release(const std::shared_ptr<Link>& link, uint64_t ticket, uint64_t bytes);
  // Posts what the calling thread's batch has, if it has one.
  static void PostAll();

 private:
  bool Add(const std::shared_ptr<Link>& link, uint64_t ticket, uint64_t bytes);
  void Post();

  std::vector<std::shared_ptr<Link>> links_;  // that have releases of this batch
  uint64_t bytes_ = 0;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_RELEASE_BATCH_H_
