// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/sender.h"

#include <cstring>
#include <string>

namespace ar_grpc::protocol {
namespace {

// What is held of a source: tells its owner when it is let go.
struct Lent {
  std::shared_ptr<const void> keep;
  std::shared_ptr<const void> registered;
  std::function<void()> released;

  Lent() = default;
  Lent(const Lent&) = delete;
  Lent& operator=(const Lent&) = delete;
  ~Lent() {
    // The owner may change or free it from there on.
    keep.reset();
    if (released) released();
  }
};

}  // namespace

std::optional<std::pair<SourceBuffer, Exports::Readable>> Sender::StageFor(
    Link& link, const SourceBuffer& source) {
  const std::shared_ptr<uint8_t> memory = stage_ ? stage_(source.size) : nullptr;
  if (memory == nullptr) return std::nullopt;
  StatusOr<Exports::Readable> readable = node_->exports()->Export(link, memory.get(), source.size);
  if (!readable.ok()) return std::nullopt;
  std::memcpy(memory.get(), source.data, source.size);
  SourceBuffer staged{memory.get(), source.size, memory};
  if (readable->keep != nullptr) {
    using Both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
    staged.keep = std::make_shared<Both>(memory, readable->keep);
  }
  return std::make_pair(std::move(staged), std::move(*readable));
}

std::optional<Offer> Sender::TryOffer(const Ask& ask, SourceBuffer source,
                                      std::function<void()> released) {
  const uint64_t size = source.size;
  if (size == 0) return std::nullopt;
  // Chosen before the offer is held, so that it is held at least as long as this link is open.
  std::shared_ptr<Link> link;
  if (node_->exports() != nullptr) link = node_->LinkReadBy(ask.receiver);
  const bool in_segment = link != nullptr && node_->exports()->Contains(source.data, size);
  // Before it is known which way this one goes: many are answered at the same time.
  const uint64_t ahead = link == nullptr ? 0 : link->CountEager(size, Link::Clock::now());
  Scheme scheme = choose_(link.get(), {size, link != nullptr, in_segment, ahead});

  std::optional<Exports::Readable> readable;
  SourceBuffer offered = source;
  if (link != nullptr && scheme == Scheme::kRead) {
    StatusOr<Exports::Readable> exported = node_->exports()->Export(*link, source.data, size);
    if (exported.ok()) readable = std::move(*exported);
  } else if (link != nullptr && scheme == Scheme::kStagedRead) {
    if (auto staged = StageFor(*link, source)) {
      offered = std::move(staged->first);
      readable = std::move(staged->second);
    }
  }
  const bool is_staged = offered.data != source.data;
  if (!readable.has_value() && scheme != Scheme::kChunked && scheme != Scheme::kEager) {
    // No staging memory, or the fabric refused it.
    scheme = choose_(nullptr, {size, /*can_read=*/false, in_segment});
  }
  if (!readable.has_value() && scheme != Scheme::kChunked && size <= kEagerLimit) {
    return std::nullopt;
  }
  if (link != nullptr) link->UncountEager(size);

  Offer offer;
  offer.sender = node_->id();
  offer.ticket = ask.ticket;
  offer.size = size;
  if (readable.has_value()) {
    offer.readable = Offer::Readable{link->id(), std::move(readable->key), readable->offset};
  }
  // A source that is held may be let go by the receiver before Hold returns.
  std::shared_ptr<Lent> lent;
  Offers::Held held{offered.data, size, offered.keep};
  if (!is_staged) {
    lent = std::make_shared<Lent>();
    lent->keep = std::move(source.keep);
    // A peer's key ends with its registration, so the offer has that, too.
    if (readable.has_value()) lent->registered = std::move(readable->keep);
    lent->released = released;
    held.keep = lent;
  }
  offered.keep.reset();
  Offers::Held replaced;
  if (!node_->offers().Hold(ask.receiver, ask.ticket, std::move(held), &replaced)) {
    if (lent != nullptr) lent->released = nullptr;
    return std::nullopt;
  }
  if (is_staged) {
    node_->CountStaged(size);
    source.keep.reset();
    if (released) released();
  }
  return offer;
}

StatusOr<Sender::Piece> Sender::ServeChunk(const ChunkRequest& request) {
  if (request.length == 0) {
    const Offers::Held released = node_->offers().Release(request.receiver, request.ticket);
    return Piece{};
  }
  std::optional<Offers::Held> held = node_->offers().Find(request.receiver, request.ticket);
  if (!held.has_value()) {
    return Status(StatusCode::kUnavailable, "the tensor is not offered any more");
  }
  if (request.offset > held->size || request.length > held->size - request.offset ||
      request.length > kLargestChunkBytes) {
    return Status(StatusCode::kInvalidArgument, "a chunk of " + std::to_string(request.length) +
                                                    " bytes at " + std::to_string(request.offset) +
                                                    " of a tensor of " +
                                                    std::to_string(held->size));
  }
  return Piece{held->data + request.offset, request.length, std::move(held->keep)};
}

}  // namespace ar_grpc::protocol
