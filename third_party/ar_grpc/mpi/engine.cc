// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/mpi/engine.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/mpi/chunks.h"

namespace ar_grpc::mpi {
namespace {

// Of messages that are taken in one turn, so that it is short.
constexpr int kMostArrivals = 16;
// A sender has one on the way, and begins the next when it knows that this one is being received.
constexpr size_t kMostEarly = 2;
// No more are matched then, until some have been received.
constexpr size_t kMostStrays = 1024;
// How long MPI may fail to look for messages before all that waits has failed.
constexpr std::chrono::seconds kFailing(5);

Status Lost(int rank) {
  return Status(StatusCode::kUnavailable,
                "rank " + std::to_string(rank) + " of the MPI job is lost");
}

}  // namespace

Engine::Engine(Calls& calls, Communicator communicator, int ranks, uint64_t chunk_bytes, Tags& tags,
               Counts& counts)
    : calls_(calls),
      communicator_(communicator),
      ranks_(ranks),
      chunk_bytes_(chunk_bytes),
      tags_(tags),
      counts_(counts) {}

Engine::Key Engine::KeyOf(bool send, int rank, int tag) {
  return (send ? 1ull << 62 : 0) | static_cast<Key>(rank) << 31 | static_cast<Key>(tag);
}

Status Engine::Check(const Transfer& transfer) const {
  if (transfer.rank < 0 || transfer.rank >= ranks_) {
    return Status(StatusCode::kInvalidArgument, "the MPI job has no rank " +
                                                    std::to_string(transfer.rank) + ", but " +
                                                    std::to_string(ranks_) + " ranks");
  }
  if (lost_.count(transfer.rank) > 0) return Lost(transfer.rank);
  if (by_key_.count(KeyOf(transfer.send, transfer.rank, transfer.tag)) > 0) {
    return Status(StatusCode::kInvalidArgument, "the tag " + std::to_string(transfer.tag) +
                                                    " is in use with rank " +
                                                    std::to_string(transfer.rank));
  }
  return OkStatus();
}

void Engine::Start(std::unique_ptr<Transfer> transfer) {
  ++counts_.waited;
  const Status status = Check(*transfer);
  if (!status.ok()) {
    Transfer& refused = *transfer;
    return Tell(refused, status, std::move(transfer));
  }
  const Id id = transfer->id;
  const Key key = KeyOf(transfer->send, transfer->rank, transfer->tag);
  by_key_[key] = id;
  Transfer& placed = *(transfers_[id] = std::move(transfer));
  if (placed.send) return NextSend(placed);
  LandEarly(placed);
}

// What came before its receive.
void Engine::LandEarly(Transfer& transfer) {
  const auto early = early_.find(KeyOf(false, transfer.rank, transfer.tag));
  if (early == early_.end()) return;
  const Arrival arrival = early->second.front();
  early->second.pop_front();
  if (early->second.empty()) early_.erase(early);
  Land(transfer, arrival);
}

void Engine::NextSend(Transfer& transfer) {
  const Chunks chunks{transfer.size, chunk_bytes_};
  StatusOr<Request> request =
      calls_.StartSend(transfer.bytes + chunks.offset(transfer.chunk), chunks.bytes(transfer.chunk),
                       transfer.rank, transfer.tag, communicator_);
  if (!request.ok()) return End(transfer, request.status());
  transfer.request = *request;
  flying_.push_back(transfer.id);
}

// A message for a receive: it must be as long as the chunk that is due.
void Engine::Land(Transfer& transfer, const Arrival& arrival) {
  const Chunks chunks{transfer.size, chunk_bytes_};
  const uint64_t due = chunks.bytes(transfer.chunk);
  if (arrival.bytes != due) {
    strays_.push_back(arrival);
    return End(transfer, Status(StatusCode::kInvalidArgument,
                                "a message from rank " + std::to_string(transfer.rank) + " has " +
                                    std::to_string(arrival.bytes) + " bytes at " +
                                    std::to_string(chunks.offset(transfer.chunk)) + " where " +
                                    std::to_string(due) + " were to come, of " +
                                    std::to_string(transfer.size)));
  }
  StatusOr<Request> request =
      calls_.StartReceive(transfer.bytes + chunks.offset(transfer.chunk), arrival);
  if (!request.ok()) return End(transfer, request.status());
  transfer.request = *request;
  flying_.push_back(transfer.id);
}

// A chunk has ended well.
void Engine::Chunked(Transfer& transfer) {
  const bool last = ++transfer.chunk == Chunks{transfer.size, chunk_bytes_}.count();
  if (last || lost_.count(transfer.rank) > 0) return End(transfer, OkStatus());
  // The rest of a cancelled send goes on: its receiver waits, and could not tell what is missing.
  if (transfer.send) return NextSend(transfer);
  // That of a cancelled receive is nobody's.
  if (!transfer.done) return End(transfer, OkStatus());
  LandEarly(transfer);
}

void Engine::Tell(Transfer& transfer, Status status, std::unique_ptr<Transfer> owned) {
  if (transfer.done) --counts_.waited;
  over_.push_back({std::exchange(transfer.done, nullptr), std::move(status), std::move(owned)});
}

void Engine::RunEnds() {
  // They may call what starts another transfer, which comes later, by the thread's inbox.
  for (Over& one : std::exchange(over_, {})) {
    if (one.done) one.done(std::move(one.status));
    one.done = nullptr;
    one.transfer.reset();
  }
}

void Engine::End(Transfer& transfer, Status status) {
  if (!transfer.done) {
    --counts_.kept;
    counts_.kept_bytes -= transfer.size;
  }
  by_key_.erase(KeyOf(transfer.send, transfer.rank, transfer.tag));
  if (status.ok()) (transfer.send ? counts_.sent : counts_.received) += transfer.size;
  Tell(transfer, std::move(status), std::move(transfers_.extract(transfer.id).mapped()));
}

// Ends it for who waits. What MPI has stays until that is over.
void Engine::StopWaiting(Transfer& transfer, Status status) {
  if (!transfer.done) return;
  if (!transfer.request) return End(transfer, std::move(status));
  ++counts_.kept;
  counts_.kept_bytes += transfer.size;
  Tell(transfer, std::move(status), nullptr);
}

void Engine::Cancel(Id id) {
  const auto found = transfers_.find(id);
  if (found == transfers_.end()) return;
  StopWaiting(*found->second, Status(StatusCode::kCancelled, "the MPI transfer was cancelled"));
}

void Engine::Lose(int rank) {
  if (rank < 0 || rank >= ranks_ || !lost_.insert(rank).second) return;
  std::vector<Id> its;
  for (const auto& [id, transfer] : transfers_) {
    if (transfer->rank == rank) its.push_back(id);
  }
  for (const Id id : its) {
    const auto found = transfers_.find(id);
    if (found != transfers_.end()) StopWaiting(*found->second, Lost(rank));
  }
  if (draining_ && draining_->rank == rank) {
    stuck_.push_back(std::move(*draining_));
    draining_.reset();
  }
  // Their sender is gone, and MPI may wait for the rest for ever.
  const auto of_rank = [rank](const Arrival& arrival) { return arrival.rank == rank; };
  strays_.erase(std::remove_if(strays_.begin(), strays_.end(), of_rank), strays_.end());
  for (auto it = early_.begin(); it != early_.end();) {
    it = it->second.front().rank == rank ? early_.erase(it) : std::next(it);
  }
}

void Engine::EndAll(const Status& status) {
  std::vector<Id> all;
  for (const auto& [id, transfer] : transfers_) all.push_back(id);
  for (const Id id : all) {
    const auto found = transfers_.find(id);
    if (found != transfers_.end()) StopWaiting(*found->second, status);
  }
}

void Engine::Close(const Status& status) {
  EndAll(status);
  closed_ = true;
  for (const auto& [key, early] : early_) {
    strays_.insert(strays_.end(), early.begin(), early.end());
  }
  early_.clear();
}

void Engine::Forget(int rank, int tag) {
  const auto early = early_.find(KeyOf(false, rank, tag));
  if (early == early_.end()) return;
  strays_.insert(strays_.end(), early->second.begin(), early->second.end());
  early_.erase(early);
}

void Engine::Abandon() {
  for (auto& [id, transfer] : transfers_) (void)transfer.release();
  if (draining_) (void)draining_->into.release();
  for (Draining& stuck : stuck_) (void)stuck.into.release();
}

bool Engine::Turn() {
  ++counts_.turns;
  bool moved = TestFlying();
  moved |= TakeArrivals();
  moved |= Drain();
  return moved;
}

bool Engine::TestFlying() {
  // What is added meanwhile waits for the next turn.
  std::vector<Id> flying = std::exchange(flying_, {});
  bool moved = false;
  for (const Id id : flying) {
    Transfer& transfer = *transfers_.at(id);
    const std::optional<Status> ended = calls_.Test(*transfer.request);
    if (!ended) {
      flying_.push_back(id);
      continue;
    }
    moved = true;
    transfer.request.reset();
    if (ended->ok()) {
      Chunked(transfer);
    } else {
      End(transfer, *ended);
    }
  }
  return moved;
}

bool Engine::TakeArrivals() {
  bool moved = false;
  for (int i = 0; i < kMostArrivals && strays_.size() < kMostStrays; ++i) {
    const StatusOr<std::optional<Arrival>> arrival = calls_.Probe(communicator_);
    if (!arrival.ok()) {
      ProbeFailed(arrival.status());
      break;
    }
    failing_since_.reset();
    if (!arrival->has_value()) break;
    moved = true;
    Sort(**arrival);
  }
  return moved;
}

// A receive whose message is not matched is unknown to MPI, so nothing else would end it. An error
// may be of another rank's death, and pass.
void Engine::ProbeFailed(const Status& status) {
  if (!std::exchange(failure_logged_, true)) {
    Log(Severity::kWarning,
        "looking for messages of the MPI job fails, and is tried again: " + status.message());
  }
  const auto now = std::chrono::steady_clock::now();
  // The thread may sleep while nobody waits: that time says nothing.
  if (!waited_for() || !failing_since_) failing_since_ = now;
  if (now - *failing_since_ >= kFailing) EndAll(Status(StatusCode::kUnavailable, status.message()));
}

void Engine::Sort(const Arrival& arrival) {
  if (lost_.count(arrival.rank) > 0) {
    // Receiving it might never end.
    ++counts_.strays;
    return;
  }
  const Key key = KeyOf(false, arrival.rank, arrival.tag);
  const auto found = by_key_.find(key);
  if (found != by_key_.end()) {
    Transfer& transfer = *transfers_.at(found->second);
    if (!transfer.request && transfer.done) return Land(transfer, arrival);
  }
  if (!closed_ && tags_.Drawn(arrival.rank, arrival.tag) && early_[key].size() < kMostEarly) {
    early_[key].push_back(arrival);
    return;
  }
  strays_.push_back(arrival);
}

// Receives one message after another that is nobody's, into memory of its own.
bool Engine::Drain() {
  if (draining_) {
    if (!calls_.Test(draining_->request)) return false;
    draining_.reset();
  }
  if (strays_.empty()) return false;
  const Arrival arrival = strays_.front();
  if (arrival.bytes > chunk_bytes_) {
    // No sender of this protocol. It keeps its memory, and we have none to spare for it.
    Log(Severity::kWarning, "a message of " + std::to_string(arrival.bytes) + " bytes from rank " +
                                std::to_string(arrival.rank) +
                                " of the MPI job, which nobody asked for, is not received");
  } else {
    std::unique_ptr<uint8_t[]> into(new (std::nothrow) uint8_t[arrival.bytes + 1]);
    if (!into) return false;
    StatusOr<Request> request = calls_.StartReceive(into.get(), arrival);
    if (request.ok()) draining_ = Draining{arrival.rank, *request, std::move(into)};
  }
  strays_.pop_front();
  ++counts_.strays;
  return true;
}

}  // namespace ar_grpc::mpi
