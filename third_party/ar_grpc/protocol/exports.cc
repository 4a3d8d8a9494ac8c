// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/exports.h"

#include "third_party/ar_grpc/base/log.h"

namespace ar_grpc::protocol {

void Exports::AddSegment(std::shared_ptr<memory::Segment> segment) {
  std::lock_guard<std::mutex> lock(mu_);
  segments_.push_back(std::move(segment));
}

bool Exports::Contains(const void* data, uint64_t size) { return Find(data, size).has_value(); }

std::optional<Exports::Found> Exports::Find(const void* data, uint64_t size) {
  std::lock_guard<std::mutex> lock(mu_);
  for (const std::shared_ptr<memory::Segment>& segment : segments_) {
    const std::optional<uint64_t> offset = segment->OffsetOf(data, size);
    // In a forked child peers would see the parent's bytes.
    if (offset.has_value() && segment->Shareable()) return Found{segment, *offset};
  }
  return std::nullopt;
}

StatusOr<std::shared_ptr<fabric::Registration>> Exports::Register(
    fabric::Context* context, const std::shared_ptr<memory::Segment>& segment) {
  std::shared_ptr<Registered> registered;
  {
    std::lock_guard<std::mutex> lock(mu_);
    std::shared_ptr<Registered>& entry = registered_[{context, segment->id()}];
    if (entry == nullptr) entry = std::make_shared<Registered>();
    registered = entry;
  }
  // Held while the fabric registers: whoever needs the same registration has nothing else to do.
  std::lock_guard<std::mutex> lock(registered->mu);
  if (registered->registration != nullptr) return registered->registration;
  const auto now = std::chrono::steady_clock::now();
  if (now < registered->refused_until) return registered->refused;
  StatusOr<std::shared_ptr<fabric::Registration>> made =
      context->Register(segment, 0, segment->size(), fabric::Access::kRead);
  if (made.ok()) return registered->registration = *made;
  registered->refused = made.status();
  registered->refused_until = now + kRefusalKept;
  Log(Severity::kWarning, std::string("peers cannot read tensors over ") + context->name() +
                              ", so these go through the stream: " + made.status().message());
  return made.status();
}

StatusOr<Exports::Readable> Exports::Export(Link& link, const void* data, uint64_t size) {
  const std::optional<Found> found = Find(data, size);
  if (!found.has_value()) {
    return Status(StatusCode::kNotFound, "the memory is in no segment that peers can read");
  }
  fabric::Context* const context = link.connection() == nullptr ? nullptr : find_(link.fabric());
  if (context == nullptr) {
    return Status(StatusCode::kUnimplemented, "nothing can be read over " + link.fabric());
  }
  StatusOr<std::shared_ptr<fabric::Registration>> registration = Register(context, found->segment);
  if (!registration.ok()) return registration.status();
  StatusOr<fabric::Key> key = link.connection()->Export(*registration);
  if (!key.ok()) return key.status();
  return Readable{std::move(*key), found->offset - (*registration)->offset()};
}

}  // namespace ar_grpc::protocol
