// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_EXPORTS_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_EXPORTS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/memory/segment.h"
#include "third_party/ar_grpc/protocol/link.h"

namespace ar_grpc::protocol {

// Which segments of this process peers may read, and their registrations with the fabrics. Nodes
// may share one. Segments and registrations live as long as it does. Thread-safe.
class Exports {
 public:
  using FindContext = std::function<fabric::Context*(const std::string& fabric)>;
  // A refused registration is tried again after this time: the limit that was too small may have
  // been raised, but pinning a segment in vain costs too much to do so for each tensor.
  static constexpr std::chrono::seconds kRefusalKept{60};

  // `find` gives the context of a link's fabric.
  explicit Exports(FindContext find = fabric::Find) : find_(std::move(find)) {}

  void AddSegment(std::shared_ptr<memory::Segment> segment);
  // Whether [data, data + size) lies in a segment that can be shared.
  bool Contains(const void* data, uint64_t size);

  struct Readable {
    fabric::Key key;
    uint64_t offset = 0;  // of `data` in what the key names
  };
  // Lets the link's peer read the segment that [data, data + size) lies in, and says where there.
  // Blocks while the segment is registered, which happens once per fabric. kNotFound: the memory is
  // in no segment.
  StatusOr<Readable> Export(Link& link, const void* data, uint64_t size);

 private:
  // A segment's registration with one context, made by the first who needs it.
  struct Registered {
    std::mutex mu;
    // Guarded by mu.
    std::shared_ptr<fabric::Registration> registration;
    Status refused;
    std::chrono::steady_clock::time_point refused_until{};
  };
  struct Found {
    std::shared_ptr<memory::Segment> segment;
    uint64_t offset = 0;
  };

  std::optional<Found> Find(const void* data, uint64_t size);
  StatusOr<std::shared_ptr<fabric::Registration>> Register(
      fabric::Context* context, const std::shared_ptr<memory::Segment>& segment);

  const FindContext find_;
  std::mutex mu_;
  std::vector<std::shared_ptr<memory::Segment>> segments_;  // guarded by mu_
  // By context and segment.
  std::map<std::pair<fabric::Context*, uint64_t>, std::shared_ptr<Registered>>
      registered_;  // guarded by mu_
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_EXPORTS_H_
