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

// To a request whose tensor was written, or should have been.
StatusOr<std::variant<Written, Held>> AnswerOf(const Status& written, uint64_t size) {
  if (!written.ok()) return written;
  return std::variant<Written, Held>(Written{size});
}

}  // namespace

Sender::Sender(fabric::Context* context)
    : acceptor_(std::make_shared<Acceptor>(context, [state = state_](const Token& link) {
        std::vector<Transfer> gone;
        {
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
        }
        for (const Transfer& one : gone) {
          for (const Answered& answered : one.again) answered(NoLink());
        }
      })) {}

Sender::~Sender() { acceptor_->Close(); }

bool Sender::Gone(const Name& name) {
  // The end of a link takes its transfers along; one that came before found nothing.
  if (acceptor_->Find(name.first) != nullptr) return false;
  Transfer gone;
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    const auto found = state_->transfers.find(name);
    if (found == state_->transfers.end()) return true;
    gone = std::move(found->second);
    state_->transfers.erase(found);
  }
  for (const Answered& answered : gone.again) answered(NoLink());
  return true;
}

std::vector<Sender::Answered> Sender::End(State* state, const Name& name, Stage stage) {
  const auto found = state->transfers.find(name);
  if (found == state->transfers.end()) return {};  // so has the link
  found->second.stage = stage;
  std::vector<Answered> again = std::exchange(found->second.again, {});
  state->over.push_back(name);
  if (state->over.size() > kMostOver) {
    state->transfers.erase(state->over.front());
    state->over.pop_front();
  }
  return again;
}

void Sender::Write(const std::shared_ptr<Link>& link, const Name& name, uint64_t transfer,
                   const Destination& destination, Source source,
                   std::function<void(Status)> done) {
  const void* const data = source.data;
  const uint64_t size = source.size;
  link->Write(transfer, destination, data, size, std::move(source.keep),
              [state = state_, name, size, done = std::move(done)](const Status& status) {
                std::vector<Answered> again;
                {
                  std::lock_guard<std::mutex> lock(state->mu);
                  again = End(state.get(), name, status.ok() ? Stage::kWritten : Stage::kDropped);
                }
                done(status);
                for (const Answered& answered : again) answered(AnswerOf(status, size));
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
  // Of a call that was made before.
  std::optional<Stage> known;
  uint64_t known_size = 0;
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    const auto [entry, is_new] = state_->transfers.try_emplace(name);
    Transfer& transfer = entry->second;
    if (is_new) {
      transfer.stage = Stage::kWriting;
      transfer.size = size;
    } else {
      known = transfer.stage;
      known_size = transfer.size;
      if (known == Stage::kWriting) transfer.again.push_back(std::move(answered));
    }
  }
  if (known == Stage::kWriting) {
    static_cast<void>(Gone(name));
    return;
  }
  // Its receiver has the bytes, or has given up.
  if (known == Stage::kWritten) return answered(AnswerOf(Status(), known_size));
  if (known.has_value()) return answered(NotNow());
  if (Gone(name)) return answered(NoLink());
  Write(link, name, ask.transfer, *ask.destination, std::move(source),
        [answered = std::move(answered), size](const Status& status) {
          answered(AnswerOf(status, size));
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
  std::optional<Stage> known;  // of a fetch that was made before
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    const auto found = state_->transfers.find(name);
    if (found != state_->transfers.end()) {
      Transfer& transfer = found->second;
      if (transfer.stage == Stage::kHeld) {
        source = std::exchange(transfer.source, {});
        transfer.stage = Stage::kWriting;
        transfer.fetched = fetch.transfer;
      } else if (transfer.fetched == fetch.transfer && transfer.stage != Stage::kDropped) {
        known = transfer.stage;
        if (known == Stage::kWriting) {
          transfer.again.push_back([done](const auto& answer) { done(answer.status()); });
        }
      }
    }
  }
  if (known == Stage::kWritten) return done(Status());
  if (known == Stage::kWriting) return;  // the write's end answers it, or the link's
  if (source.has_value()) {
    return Write(link, name, fetch.transfer, fetch.destination, std::move(*source),
                 std::move(done));
  }
  link->Refuse(fetch.transfer);
  done(Status(StatusCode::kNotFound, "the tensor is not held any more"));
}

Status Sender::Drop(const verbs::Drop& drop) {
  const std::shared_ptr<Link> link = acceptor_->Find(drop.link);
  if (!link) return NoLink();
  const Name name = {drop.link, drop.asked};
  Source gone;  // ends without the lock
  {
    std::lock_guard<std::mutex> lock(state_->mu);
    const auto [entry, is_new] = state_->transfers.try_emplace(name);
    if (!is_new && entry->second.stage != Stage::kHeld) return Status();
    gone = std::exchange(entry->second.source, {});
    End(state_.get(), name, Stage::kDropped);
  }
  if (!Gone(name)) link->Refuse(drop.offered);
  return Status();
}

size_t Sender::held() const {
  std::lock_guard<std::mutex> lock(state_->mu);
  return static_cast<size_t>(
      std::count_if(state_->transfers.begin(), state_->transfers.end(),
                    [](const auto& one) { return one.second.stage == Stage::kHeld; }));
}

}  // namespace ar_grpc::verbs
