// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SEND_QUEUE_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SEND_QUEUE_H_

#include <algorithm>
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
  bool payload = true;                   // its bytes count
  std::shared_ptr<MemoryRegion> region;  // has the local memory
  std::shared_ptr<const void> keep;
  Done done;
  Status status;

  // The send queue's own.
  uint64_t posted = 0;     // bytes
  size_t outstanding = 0;  // requests
};
using Operations = std::vector<std::shared_ptr<Operation>>;

// Which operations a queue pair is told next, and what it has answered. An operation goes to the
// device in parts of a size that it takes, and no more of them at once than it works at: one that
// had to wait there would hold up the frames behind it. Calls no device; not thread-safe.
class SendQueue {
 public:
  // What the device does at once: a part of an operation, or a frame of the stream.
  struct Request {
    uint64_t id = 0;
    uint64_t offset = 0;  // in its operation
    uint64_t size = 0;
    std::shared_ptr<Operation> operation;  // nullptr: a frame
    uint32_t buffer = 0;                   // a frame's
    bool signaled = true;                  // the device answers it
  };

  // At most `most_parts` parts of operations are with the device at once; who sends frames limits
  // those by their buffers.
  SendQueue(size_t most_parts, uint64_t most_bytes)
      : most_parts_(most_parts), most_bytes_(most_bytes) {}

  // No more than `parts` from now on: the peer serves no more at once.
  void Limit(size_t parts) { most_parts_ = std::min(most_parts_, parts); }
  void Add(std::shared_ptr<Operation> operation) { waiting_.push_back(std::move(operation)); }
  // What to post now; nullopt where nothing waits or no place is free.
  std::optional<Request> Next() const;
  // A frame to post now.
  Request NextFrame(uint32_t buffer, uint64_t size, bool signaled) const;
  // The device has taken what Next or NextFrame gave.
  void Posted(const Request& request);
  // The device has parts of operations still. Frames do not count: it answers few of them.
  bool busy() const { return parts_ > 0; }
  bool has_frames() const { return posted_.size() > parts_; }
  size_t most_parts() const { return most_parts_; }
  // Takes out what has completed with the answer of this id, the answered one last: requests
  // complete in order, but that soft-iWARP answers a frame or a WRITE while it waits for READs that
  // it was told before; of an unanswered frame the device speaks only where it failed. Empty where
  // no answer of this id is due.
  std::vector<Request> TakeOut(uint64_t id);
  // How a part of an operation that was taken out has ended; the operation's first error counts. An
  // operation that has ended joins `ended`.
  void End(const Request& request, const Status& status, Operations* ended);
  // Nothing more is posted: what waits ends with `why`, what is partly posted with its last
  // request.
  void Stop(const Status& why, Operations* ended);
  // After Stop: the device does not touch what was posted any more, and will not answer it.
  void Abandon(Operations* ended);

 private:
  size_t most_parts_;
  const uint64_t most_bytes_;
  uint64_t last_id_ = 0;
  Status stopped_;  // not kOk: why
  std::deque<std::shared_ptr<Operation>> waiting_;
  std::deque<Request> posted_;
  size_t parts_ = 0;  // of operations, in posted_
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SEND_QUEUE_H_
