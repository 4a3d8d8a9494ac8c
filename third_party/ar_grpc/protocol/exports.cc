// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/exports.h"

#include "third_party/ar_grpc/base/log.h"

namespace ar_grpc::protocol {

void Exports::AddSegment(std::shared_ptr<memory::Segment> segment,
                         memory::ExtentAllocator* extents) {
  auto pages = std::make_shared<PinnablePages>();
  pages->segment = std::move(segment);
  pages->extents = extents;
  std::lock_guard<std::mutex> lock(mu_);
  segments_.push_back(std::move(pages));
}

bool Exports::Contains(const void* data, uint64_t size) { return Find(data, size).has_value(); }

std::optional<Exports::Found> Exports::Find(const void* data, uint64_t size) {
  std::lock_guard<std::mutex> lock(mu_);
  for (const std::shared_ptr<PinnablePages>& pages : segments_) {
    const std::optional<uint64_t> offset = pages->segment->OffsetOf(data, size);
    // In a forked child peers would see the parent's bytes.
    if (offset.has_value() && pages->segment->Shareable()) return Found{pages, *offset};
  }
  return std::nullopt;
}

StatusOr<std::shared_ptr<fabric::Registration>> Exports::Register(
    fabric::Context* context, const std::shared_ptr<memory::Segment>& segment) {
  std::shared_ptr<Whole> whole;
  {
    std::lock_guard<std::mutex> lock(mu_);
    std::shared_ptr<Whole>& entry = whole_[{context, segment->id()}];
    if (entry == nullptr) entry = std::make_shared<Whole>();
    whole = entry;
  }
  // Held while the fabric registers: whoever needs the same registration has nothing else to do.
  std::lock_guard<std::mutex> lock(whole->mu);
  if (whole->registration != nullptr) return whole->registration;
  const auto now = std::chrono::steady_clock::now();
  if (now < whole->refused_until) return whole->refused;
  StatusOr<std::shared_ptr<fabric::Registration>> made =
      context->Register(segment, 0, segment->size(), fabric::Access::kRead);
  if (made.ok()) return whole->registration = *made;
  whole->refused = made.status();
  whole->refused_until = now + kRefusalKept;
  Log(Severity::kWarning, std::string("peers cannot read tensors over ") + context->name() +
                              ", so these go through the stream: " + made.status().message());
  return made.status();
}

StatusOr<Exports::Readable> Exports::Export(Link& link, const void* data, uint64_t size) {
  const std::optional<Found> found = Find(data, size);
  if (!found.has_value()) {
    return Status(StatusCode::kNotFound, "the memory is in no segment that peers can read");
  }
  if (size == 0) return Status(StatusCode::kInvalidArgument, "there are no bytes to read");
  fabric::Context* const context = ContextOf(link);
  if (context == nullptr) {
    return Status(StatusCode::kUnimplemented, "nothing can be read over " + link.fabric());
  }
  std::shared_ptr<PinnedRanges> pinned;
  if (context->capabilities().pins) pinned = PinnedBy(context, found->pages);
  StatusOr<std::shared_ptr<fabric::Registration>> registration =
      pinned == nullptr ? Register(context, found->pages->segment)
                        : pinned->Find({found->offset, size});
  if (!registration.ok()) return registration.status();
  StatusOr<fabric::Key> key = link.connection()->Export(*registration);
  if (!key.ok()) return key.status();
  const uint64_t offset = found->offset - (*registration)->offset();
  return Readable{std::move(*key), offset, pinned == nullptr ? nullptr : std::move(*registration)};
}

fabric::Context* Exports::ContextOf(Link& link) const {
  return link.connection() == nullptr ? nullptr : find_(link.fabric());
}

std::shared_ptr<PinnedRanges> Exports::PinnedBy(fabric::Context* context,
                                                const std::shared_ptr<PinnablePages>& pages) {
  std::shared_ptr<PinnedRanges> pinned;
  {
    std::lock_guard<std::mutex> lock(mu_);
    std::shared_ptr<PinnedRanges>& entry = pinned_[{context, pages->segment->id()}];
    if (entry != nullptr) return entry;
    pinned = entry = std::make_shared<PinnedRanges>(context, pages);
    // Before what is in use is looked at: what is handed out after that sees it.
    pins_.store(true, std::memory_order_release);
  }
  pinned->WantWhatIsInUse();
  return pinned;
}

std::vector<std::shared_ptr<PinnedRanges>> Exports::PinnedOf(uint64_t segment) {
  std::vector<std::shared_ptr<PinnedRanges>> all;
  std::lock_guard<std::mutex> lock(mu_);
  for (const auto& [place, pinned] : pinned_) {
    if (place.second == segment) all.push_back(pinned);
  }
  return all;
}

void Exports::Prepare(Link& link) {
  if (fabric::Context* const context = ContextOf(link)) Prepare(context);
}

void Exports::Prepare(fabric::Context* context) {
  if (!context->capabilities().pins) return;
  std::vector<std::shared_ptr<PinnablePages>> segments;
  {
    std::lock_guard<std::mutex> lock(mu_);
    segments = segments_;
  }
  for (const std::shared_ptr<PinnablePages>& pages : segments) {
    if (pages->segment->Shareable()) PinnedBy(context, pages);
  }
}

bool Exports::Registered(Link& link, const void* data, uint64_t size) {
  fabric::Context* const context = ContextOf(link);
  return context != nullptr && Registered(context, data, size);
}

bool Exports::Registered(fabric::Context* context, const void* data, uint64_t size) {
  const std::optional<Found> found = Find(data, size);
  if (!found.has_value() || size == 0) return false;
  if (!context->capabilities().pins) return true;
  return PinnedBy(context, found->pages)->Find({found->offset, size}).ok();
}

void Exports::WantCarved(const void* data, uint64_t size) {
  const std::optional<Found> found = Find(data, size);
  if (!found.has_value() || size == 0) return;
  for (const auto& pinned : PinnedOf(found->pages->segment->id())) {
    pinned->Want({found->offset, size});
  }
}

StatusOr<bool> Exports::Discard(const std::shared_ptr<memory::Segment>& segment,
                                const PinnablePages::Range& range,
                                PinnedRanges::Clock::time_point now) {
  const std::optional<Found> found = Find(segment->data() + range.offset, range.length);
  if (!found.has_value()) {
    return Status(StatusCode::kFailedPrecondition, "the pages are in no segment that peers read");
  }
  // Taken unless a range is being registered, perhaps this one: the first of a fabric, in the queue
  // that this thread is not of yet.
  const std::unique_lock<std::mutex> changing(found->pages->changing, std::try_to_lock);
  if (!changing.owns_lock()) return false;
  // The tables of now: one that comes later registers nothing before `changing` is given back.
  for (const auto& pinned : PinnedOf(segment->id())) {
    if (!pinned->LetGo(range, now)) return false;
  }
  const Status status = segment->Discard(range.offset, range.length);
  if (!status.ok()) return status;
  return true;
}

}  // namespace ar_grpc::protocol
