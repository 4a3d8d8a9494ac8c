// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/verbs/sender.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ar_grpc::verbs {
namespace {

Status NoLink() {
  return Status(StatusCode::kUnavailable, "the RDMA connection of this transfer has ended");
}

Status NotNow() {
  return Status(StatusCode::kAborted, "the transfer was dropped, or is under way");
}

}  // namespace

Sender::Sender(fabric::Context* context)
    : acceptor_(std::make_shared<Acceptor>(context, [state = state_](const Token& link) {
        std::vector<Transfer> gone;  // end without the lock
        std::lock_guard<std::mutex> lock(state->mu);
        const auto first = state->transfers.lower_bound({link, 0});
        auto end = first;
        for (; end != state->transfers.end() && end->first.first == link; ++end) {
          gone.push_back(std::move(end->second));
        }
        state->transfers.erase(first, end);
        state->over.erase(std::remove_if(state->over.begin(), state->over.end(),
                                         [&link](const Name& one) { return one.first == link; }),
                          state->over.end());
      })) {}

Sender::~Sender() { acceptor_->Close(); }

bool Sender::Gone(const Name& name) {
  // The end of a link takes its transfers along; one that came before found nothing.
  if (acceptor_->Find(name.first) != nullptr) return false;
  Transfer gone;  // ends without the lock
  std::lock_guard<std::mutex> lock(state_->mu);
  const auto found = state_->transfers.find(name);
  if (found == state_->transfers.end()) return true;
  gone = std::move(found->second);
  state_->transfers.erase(found);
  return true;
}

void Sender::End(State* state, const Name& name, Stage stage) {
  const auto found = state->transfers.find(name);
  if (found == state->transfers.end()) return;  // so has the link
  found->second.stage = stage;
  state->over.push_back(name);
  if (state->over.size() <= kMostOver) return;
  state->transfers.erase(state->over.front());
  state->over.pop_front();
}

void Sender::Write(const std::shared_ptr<Link>& link, const Name& name, uint64_t transfer,
                   const Destination& destination, Source source,
                   std::function<void(Status)> done) {
  const void* const data = source.data;
  const uint64_t size = source.size;
  link->Write(transfer, destination, data, size, std::move(source.keep),
              [state = state_, name, done = std::move(done)](const Status& status) {
                {
                  std::lock_guard<std::mutex> lock(state->mu);
                  End(state.get(), name, status.ok() ? Stage::kWritten : Stage::kDropped);
                }
                done(status);
              });
}

void Sender::Answer(const Ask& ask, Source source, Answered answered) {
  const std::shared_ptr<Link> link = acceptor_->Find(ask.link);
  if (!link) return answered(NoLink());
  const Name name = {ask.link, ask.transfer};
  const uint64_t size = source.size;
  const bool fits = ask.destination.has_value() && size <= ask.destination->size;
  if (!fits) {
    const StatusOr<Held> held = Hold(ask, std::move(source));
    if (!held.ok()) return answered(held.status());
    if (ask.destination.has_value()) link->Refuse(ask.transfer);
    return answered(std::variant<Written, Held>(*held));
  }
  std::optional<Transfer> known;
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    const auto [entry, is_new] = state_->transfers.try_emplace(name);
    if (is_new) {
      entry->second.stage = Stage::kWriting;
      entry->second.size = size;
    } else {
      known = Transfer{entry->second.stage, {}, entry->second.size};
    }
  }
  if (known.has_value() && known->stage == Stage::kWritten) {
    // A call that was made again: its receiver has the bytes, or has given up.
    return answered(std::variant<Written, Held>(Written{known->size}));
  }
  if (known.has_value()) return answered(NotNow());
  if (Gone(name)) return answered(NoLink());
  Write(link, name, ask.transfer, *ask.destination, std::move(source),
        [answered = std::move(answered), size](const Status& status) {
          if (!status.ok()) return answered(status);
          answered(std::variant<Written, Held>(Written{size}));
        });
}

StatusOr<Held> Sender::Hold(const Ask& ask, Source source) {
  const Name name = {ask.link, ask.transfer};
  const Held held = {source.size};
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    const auto [entry, is_new] = state_->transfers.try_emplace(name);
    if (!is_new && entry->second.stage != Stage::kHeld) {
      return NotNow();
    }
    if (is_new) {
      entry->second.size = source.size;
      entry->second.source = std::move(source);
    }
  }
  if (Gone(name)) return NoLink();
  return held;
}

void Sender::Serve(const Fetch& fetch, std::function<void(Status)> done) {
  const std::shared_ptr<Link> link = acceptor_->Find(fetch.link);
  if (!link) return done(NoLink());
  const Name name = {fetch.link, fetch.asked};
  std::optional<Source> source;
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    const auto found = state_->transfers.find(name);
    if (found != state_->transfers.end() && found->second.stage == Stage::kHeld) {
      source = std::exchange(found->second.source, {});
      found->second.stage = Stage::kWriting;
    }
  }
  if (source.has_value()) {
    return Write(link, name, fetch.transfer, fetch.destination, std::move(*source),
                 std::move(done));
  }
  link->Refuse(fetch.transfer);
  done(Status(StatusCode::kNotFound, "the tensor is not held any more"));
}

void Sender::Drop(const verbs::Drop& drop) {
  const std::shared_ptr<Link> link = acceptor_->Find(drop.link);
  if (!link) return;
  const Name name = {drop.link, drop.asked};
  Source gone;  // ends without the lock
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    const auto [entry, is_new] = state_->transfers.try_emplace(name);
    if (!is_new && entry->second.stage != Stage::kHeld) return;
    gone = std::exchange(entry->second.source, {});
    End(state_.get(), name, Stage::kDropped);
  }
  if (!Gone(name)) link->Refuse(drop.offered);
}

size_t Sender::held() const {
  std::lock_guard<std::mutex> lock(state_->mu);
  return static_cast<size_t>(
      std::count_if(state_->transfers.begin(), state_->transfers.end(),
                    [](const auto& one) { return one.second.stage == Stage::kHeld; }));
}

}  // namespace ar_grpc::verbs
