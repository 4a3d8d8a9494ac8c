// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/verbs/link.h"

#include <string>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/reactor.h"

namespace ar_grpc::verbs {
namespace {

// Notes that are taken before others have their turn.
constexpr int kRound = 64;

Status Broken(const std::string& why) { return Status(StatusCode::kUnavailable, why); }
Status TooMuchKept() {
  return Broken("too much memory waits for tensors that nobody wants any more");
}

}  // namespace

Counts& AllCounts() {
  static auto* const counts = new Counts;
  return *counts;
}

StatusOr<std::shared_ptr<Link>> Link::Start(std::unique_ptr<fabric::Connection> connection,
                                            std::shared_ptr<LandingPool> landing,
                                            std::function<void()> ended, int beat_ms) {
  const fabric::Capabilities can = connection->capabilities();
  if (!can.put || !can.stream) {
    return Status(StatusCode::kUnimplemented, "this fabric has no writes and notes");
  }
  const std::shared_ptr<Link> link(new Link(std::move(landing), std::move(ended), beat_ms));
  link->connection_ = std::move(connection);
  const std::weak_ptr<Link> weak = link;
  const Status status = Reactor::Get().Add(link->connection_->wake_fd(), [weak] {
    if (const std::shared_ptr<Link> self = weak.lock()) self->Turn();
  });
  if (!status.ok()) return status;
  // What came before that wakes nobody.
  const Status started = StartOnReactor([link] { link->Turn(); });
  if (!started.ok()) return started;
  link->Beat();
  return link;
}

Link::~Link() {
  Reactor::Get().Remove(connection_->wake_fd());
  AllCounts().kept_bytes -= kept_bytes_;
  if (status_.ok()) --AllCounts().links;
}

void Link::Beat() {
  Reactor::Get().RunAfter(beat_ms_, [weak = weak_from_this()] {
    const std::shared_ptr<Link> self = weak.lock();
    if (!self || !self->status().ok()) return;
    if (++self->silent_beats_ > kMostSilent) {
      return self->End(Broken("nothing has come from the peer for " +
                              std::to_string(kMostSilent * self->beat_ms_ / 1000) + " s"));
    }
    if (self->KeepsTooMuch()) return self->End(TooMuchKept());
    self->Send({});
    self->Beat();
  });
}

bool Link::KeepsTooMuch() {
  std::lock_guard<std::mutex> lock(mu_);
  uint64_t long_kept = 0;
  for (auto& [transfer, one] : expected_) {
    if (!one.noted && ++one.kept_beats > kMostSilent) long_kept += one.block->size();
  }
  return long_kept > kMostKept;
}

Status Link::status() const {
  std::lock_guard<std::mutex> lock(mu_);
  return status_;
}

StatusOr<Destination> Link::Expect(uint64_t transfer, std::shared_ptr<LandingPool::Block> block,
                                   Noted noted) {
  StatusOr<fabric::Key> key = connection_->Export(block->registration());
  if (!key.ok()) return key.status();
  Destination destination{std::move(*key), block->offset(), block->size()};
  std::lock_guard<std::mutex> lock(mu_);
  if (!status_.ok()) return status_;
  expected_[transfer] = {std::move(block), std::move(noted), 0};
  return destination;
}

bool Link::Forget(uint64_t transfer) {
  bool too_much = false;
  Noted unwanted;  // ends without the lock
  {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = expected_.find(transfer);
    if (found == expected_.end()) return false;
    if (!found->second.noted) return true;
    unwanted.swap(found->second.noted);
    kept_bytes_ += found->second.block->size();
    AllCounts().kept_bytes += found->second.block->size();
    too_much = kept_bytes_ > kMostKeptAtOnce;
  }
  if (too_much) End(TooMuchKept());
  return true;
}

void Link::Release(uint64_t transfer) {
  Expected released;  // ends without the lock
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = expected_.find(transfer);
  if (found != expected_.end()) released = TakeOut(found);
}

Link::Expected Link::TakeOut(std::map<uint64_t, Expected>::iterator found) {
  Expected taken = std::move(found->second);
  expected_.erase(found);
  if (!taken.noted) {
    kept_bytes_ -= taken.block->size();
    AllCounts().kept_bytes -= taken.block->size();
  }
  return taken;
}

void Link::Write(uint64_t transfer, const Destination& destination, const void* from, uint64_t size,
                 std::shared_ptr<const void> keep, Done done) {
  if (size > destination.size) {
    Refuse(transfer);
    return done(Status(StatusCode::kInvalidArgument, std::to_string(size) +
                                                         " bytes do not fit into the peer's " +
                                                         std::to_string(destination.size)));
  }
  connection_->Put(destination.key, destination.offset, from, size, std::move(keep),
                   [self = shared_from_this(), transfer, size, done](const Status& status) {
                     if (status.ok()) {
                       AllCounts().written += size;
                       self->Send({transfer, true, size});
                     } else {
                       self->Refuse(transfer);
                     }
                     done(status);
                   });
}

void Link::Refuse(uint64_t transfer) { Send({transfer, false, 0}); }

void Link::Send(const Note& note) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!status_.ok()) return;
    notes_.push_back(Encode(note));
    if (std::exchange(turning_, true)) return;
  }
  const Status status = StartOnReactor([self = shared_from_this()] { self->Turn(); });
  // The peer would wait for ever.
  if (!status.ok()) End(status);
}

void Link::Turn() {
  connection_->ClearWake();
  Status status;
  for (bool sleeps = false; status.ok() && !sleeps;) {
    bool waits = false;
    bool more = false;
    status = SendNotes(&waits);
    if (status.ok()) status = TakeNotes(&more);
    if (!status.ok()) break;
    if (more) {
      // The others on this thread have their turn first.
      status = StartOnReactor([self = shared_from_this()] { self->Turn(); });
      break;
    }
    // No link has a stream, so what shows there is none of ours, and would wake us for ever.
    const StatusOr<size_t> stream = connection_->Readable();
    if (stream.ok() && *stream > 0) status = Broken("the peer sends what no note is");
    if (!stream.ok()) status = stream.status();
    if (!status.ok()) break;
    const StatusOr<bool> read = connection_->ArmRead();
    const StatusOr<bool> post = waits ? connection_->ArmPost() : true;
    status = !read.ok() ? read.status() : post.status();
    sleeps = status.ok() && *read && *post;
  }
  if (!status.ok()) End(status);
}

Status Link::SendNotes(bool* waits) {
  while (true) {
    fabric::Message note;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!status_.ok()) return status_;
      if (notes_.empty()) {
        turning_ = false;
        return Status();
      }
      note = notes_.front();
    }
    const StatusOr<bool> sent = connection_->Post(note);
    if (!sent.ok()) return sent.status();
    if (!*sent) {
      *waits = true;
      return Status();
    }
    std::lock_guard<std::mutex> lock(mu_);
    if (!notes_.empty()) notes_.pop_front();  // the end has taken all
  }
}

Status Link::TakeNotes(bool* more) {
  for (int i = 0; i < kRound; ++i) {
    fabric::Message message;
    const StatusOr<bool> taken = connection_->Take(&message);
    if (!taken.ok()) return taken.status();
    if (!*taken) return Status();
    const StatusOr<Note> note = DecodeNote(message);
    if (!note.ok()) return note.status();
    if (Status status = TakeNote(*note); !status.ok()) return status;
  }
  *more = true;
  return Status();
}

Status Link::TakeNote(const Note& note) {
  silent_beats_ = 0;
  Expected expected;
  {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = expected_.find(note.transfer);
    // A sign of life; or of one that nobody expects any more, or ever did.
    if (found == expected_.end()) return Status();
    if (note.written && note.size > found->second.block->size()) {
      return Broken("the peer says that it wrote more than there is room for");
    }
    expected = TakeOut(found);
  }
  if (note.written) AllCounts().received += note.size;
  if (!expected.noted) return Status();
  expected.block.reset();  // the transfer has it, and its next one may want the place
  if (note.written) {
    expected.noted(note.size);
  } else {
    expected.noted(Status(StatusCode::kAborted, "the peer does not write the tensor"));
  }
  return Status();
}

void Link::End(const Status& why) {
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!status_.ok()) return;
    status_ = Status(StatusCode::kUnavailable, why.message());
    notes_.clear();
  }
  // A connection that has ended would wake us for ever.
  Reactor::Get().Remove(connection_->wake_fd());
  connection_->Close([self = shared_from_this()] { self->OnGone(); });
}

void Link::OnGone() {
  std::map<uint64_t, Expected> expected;
  std::function<void()> ended;
  Status why;
  {
    std::lock_guard<std::mutex> lock(mu_);
    expected.swap(expected_);
    ended.swap(ended_);
    why = status_;
    AllCounts().kept_bytes -= std::exchange(kept_bytes_, 0);
    --AllCounts().links;
  }
  for (auto& [transfer, one] : expected) {
    if (one.noted) one.noted(why);
  }
  if (ended) ended();
}

}  // namespace ar_grpc::verbs
