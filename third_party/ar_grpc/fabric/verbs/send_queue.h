// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SEND_QUEUE_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SEND_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/memory_region.h"

namespace ar_grpc::fabric::verbs {

// A Get or a Put on its way.
struct Operation {
  int opcode = abi::kRdmaRead;
  uint64_t local = 0;
  uint64_t remote = 0;
  uint32_t rkey = 0;
  uint64_t size = 0;
  std::shared_ptr<MemoryRegion> region;  // has the local memory
  std::shared_ptr<const void> keep;
  Done done;
  Status status;

  // The send queue's own.
  uint64_t posted = 0;     // bytes
  size_t outstanding = 0;  // requests
};
using Operations = std::vector<std::shared_ptr<Operation>>;

// Which operations a queue pair is told next, and which it has answered. An operation goes to the
// device in requests of a size that it takes, and no more of them at once than there are places in
// the device's queues. Calls no device; not thread-safe.
class SendQueue {
 public:
  // A part of an operation that the device does at once.
  struct Request {
    uint64_t id = 0;
    uint64_t offset = 0;  // in its operation
    uint64_t size = 0;
    std::shared_ptr<Operation> operation;
  };

  SendQueue(size_t most_requests, uint64_t most_bytes)
      : most_requests_(most_requests), most_bytes_(most_bytes) {}

  void Add(std::shared_ptr<Operation> operation) { waiting_.push_back(std::move(operation)); }
  // What to post now; nullopt where nothing waits or no place is free.
  std::optional<Request> Next() const;
  // The device has taken what Next gave.
  void Posted(const Request& request);
  // The device has posted requests still.
  bool busy() const { return !posted_.empty(); }
  // Takes out the request that completes next, requests complete in order; nullopt where it has not
  // this id.
  std::optional<Request> TakeOut(uint64_t id);
  // How a request that was taken out has ended; the operation's first error counts. An operation
  // that has ended joins `ended`.
  void End(const Request& request, const Status& status, Operations* ended);
  // Nothing more is posted: what waits ends with `why`, what is partly posted with its last
  // request.
  void Stop(const Status& why, Operations* ended);
  // After Stop: the device does not touch what was posted any more, and will not answer it.
  void Abandon(Operations* ended);

 private:
  const size_t most_requests_;
  const uint64_t most_bytes_;
  uint64_t last_id_ = 0;
  Status stopped_;  // not kOk: why
  std::deque<std::shared_ptr<Operation>> waiting_;
  std::deque<Request> posted_;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SEND_QUEUE_H_
