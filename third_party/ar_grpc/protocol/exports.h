// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_EXPORTS_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_EXPORTS_H_

#include <atomic>
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
#include "third_party/ar_grpc/protocol/pinned_ranges.h"

namespace ar_grpc::protocol {

// Which segments of this process peers may read, and their registrations with the fabrics. Nodes
// may share one. Segments live as long as it does. A fabric registers a segment as a whole, once,
// when it is first needed; one that pins pages (fabric::Capabilities) registers what was handed out
// (PinnedRanges). Memory outside of the segments has no key: it goes through the stream, or is
// staged. Thread-safe.
class Exports {
 public:
  using FindContext = std::function<fabric::Context*(const std::string& fabric)>;
  // A refused registration is tried again after this time.
  static constexpr std::chrono::seconds kRefusalKept = PinnedRanges::kRefusalKept;

  // `find` gives the context of a link's fabric.
  explicit Exports(FindContext find = fabric::Find) : find_(std::move(find)) {}

  // `extents` as in PinnablePages.
  void AddSegment(std::shared_ptr<memory::Segment> segment,
                  memory::ExtentAllocator* extents = nullptr);
  // Whether [data, data + size) lies in a segment that can be shared.
  bool Contains(const void* data, uint64_t size);

  struct Readable {
    fabric::Key key;
    uint64_t offset = 0;  // of `data` in what the key names
    // To be held as long as the peer may use the key; nullptr where the registration stays anyway.
    std::shared_ptr<const void> keep;
  };
  // Lets the link's peer read the segment that [data, data + size) lies in, and says where there.
  // Blocks while the segment is registered, which happens once per fabric, but over a fabric that
  // pins pages: there what is not registered gives kUnavailable, and is registered for the next
  // time. kNotFound: the memory is in no segment.
  StatusOr<Readable> Export(Link& link, const void* data, uint64_t size);

  // --- over fabrics that pin pages ---

  // A link has come, or `context` is going to be used: if that pins pages, what is in use is
  // registered from now on.
  void Prepare(Link& link);
  void Prepare(fabric::Context* context);
  // Whether a one-sided operation over `link`, or a connection of `context`, finds
  // [data, data + size) registered. If not, and it is in a segment, it is registered for the next
  // time.
  bool Registered(Link& link, const void* data, uint64_t size);
  bool Registered(fabric::Context* context, const void* data, uint64_t size);
  // Whether any link's fabric did so yet.
  bool pins() const { return pins_.load(std::memory_order_acquire); }
  // Memory of a segment was handed out that held none. An atomic load where nothing pins.
  void Carved(const void* data, uint64_t size) {
    if (pins()) WantCarved(data, size);
  }
  // Segment::Discard, after all registrations that reach into the pages have ended. false: the
  // pages are registered, and used or used lately; they hold what they did. Where pins(), this is
  // for the thread of PinnedRanges::Queue(): deregistering takes long.
  StatusOr<bool> Discard(const std::shared_ptr<memory::Segment>& segment,
                         const PinnablePages::Range& range,
                         PinnedRanges::Clock::time_point now = PinnedRanges::Clock::now());

 private:
  // A segment's registration with one context, made by the first who needs it.
  struct Whole {
    std::mutex mu;
    // Guarded by mu.
    std::shared_ptr<fabric::Registration> registration;
    Status refused;
    std::chrono::steady_clock::time_point refused_until{};
  };
  struct Found {
    std::shared_ptr<PinnablePages> pages;
    uint64_t offset = 0;
  };

  std::optional<Found> Find(const void* data, uint64_t size);
  StatusOr<std::shared_ptr<fabric::Registration>> Register(
      fabric::Context* context, const std::shared_ptr<memory::Segment>& segment);
  // The link's context; nullptr where nothing can be read over it.
  fabric::Context* ContextOf(Link& link) const;
  std::shared_ptr<PinnedRanges> PinnedBy(fabric::Context* context,
                                         const std::shared_ptr<PinnablePages>& pages);
  // Of all contexts.
  std::vector<std::shared_ptr<PinnedRanges>> PinnedOf(uint64_t segment);
  void WantCarved(const void* data, uint64_t size);

  const FindContext find_;
  std::mutex mu_;
  std::vector<std::shared_ptr<PinnablePages>> segments_;  // guarded by mu_
  // By context and segment.
  std::map<std::pair<fabric::Context*, uint64_t>, std::shared_ptr<Whole>> whole_;  // guarded by mu_
  std::map<std::pair<fabric::Context*, uint64_t>, std::shared_ptr<PinnedRanges>>
      pinned_;  // guarded by mu_
  std::atomic<bool> pins_{false};
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_EXPORTS_H_
