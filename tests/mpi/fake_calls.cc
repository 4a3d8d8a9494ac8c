// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/mpi/fake_calls.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <utility>

#include "tests/conformance/testing.h"

namespace ar_grpc::mpi::testing {

// The least that an MPI may have.
constexpr int kLargestTag = 32767;

class FakeCalls final : public Calls {
 public:
  FakeCalls(FakeJob& job, int rank, Says says)
      : job_(job), rank_(rank), says_(says), random_(rank) {}

  std::string Version() override { return "a fake"; }
  bool Initialized() override { return says_.initialized; }
  bool Finalized() override { return says_.finalized || finalized_; }
  StatusOr<ThreadLevel> Init() override { return says_.level; }
  StatusOr<ThreadLevel> Level() override { return says_.level; }
  Status Finalize() override {
    Use();
    if (before_finalize_) std::exchange(before_finalize_, nullptr)();
    finalized_ = true;
    return OkStatus();
  }
  Status BeforeFinalize(std::function<void()> run) override {
    before_finalize_ = std::move(run);
    return OkStatus();
  }
  Communicator World() override { return Communicator{1}; }
  StatusOr<int> Rank(Communicator) override { return rank_; }
  StatusOr<int> Size(Communicator) override { return job_.ranks_; }
  StatusOr<Request> StartCopy(Communicator, Communicator* copy) override {
    *copy = Communicator{2};
    return Add({});
  }
  Status ReturnErrors(Communicator) override { return OkStatus(); }
  StatusOr<int> LargestTag(Communicator) override { return kLargestTag; }
  StatusOr<Request> StartBroadcast(void* bytes, size_t size, int root, Communicator) override {
    std::lock_guard<std::mutex> lock(job_.mu_);
    auto* const first = static_cast<uint8_t*>(bytes);
    if (rank_ == root) {
      unsent_.assign(first, first + size);
      return Add({});
    }
    Pending pending;
    pending.broadcast = first;
    return Add(pending);
  }
  StatusOr<Request> StartSend(const void* bytes, size_t size, int rank, int tag,
                              Communicator) override {
    Use();
    std::lock_guard<std::mutex> lock(job_.mu_);
    Pending pending;
    pending.sent = std::make_shared<FakeJob::Sent>(
        FakeJob::Sent{rank_, tag, static_cast<const uint8_t*>(bytes), size});
    job_.queues_[rank].push_back(pending.sent);
    return Add(pending);
  }
  StatusOr<Request> StartReceive(void* into, const Arrival& arrival) override {
    Use();
    Pending pending;
    pending.sent = matched_.at(arrival.message);
    pending.into = static_cast<uint8_t*>(into);
    pending.receive = true;
    pending.delay = random_() % 4;
    matched_.erase(arrival.message);
    std::lock_guard<std::mutex> lock(job_.mu_);
    ++job_.begun_[arrival.rank];
    return Add(pending);
  }
  StatusOr<std::optional<Arrival>> Probe(Communicator) override {
    Use();
    std::lock_guard<std::mutex> lock(job_.mu_);
    if (!unsent_.empty()) job_.broadcast_ = std::exchange(unsent_, {});
    if (job_.failing_[rank_]) return Status(StatusCode::kUnavailable, "MPI_Improbe: a failure");
    auto& queue = job_.queues_[rank_];
    if (queue.empty() || random_() % 3 == 0) return std::optional<Arrival>();
    const std::shared_ptr<FakeJob::Sent> sent = queue.front();
    queue.pop_front();
    Arrival arrival;
    arrival.message = static_cast<Message>(++last_);
    arrival.rank = sent->from;
    arrival.tag = sent->tag;
    arrival.bytes = sent->size;
    matched_[arrival.message] = sent;
    ++job_.matched_[sent->from];
    return std::optional<Arrival>(arrival);
  }
  std::optional<Status> Test(Request request) override {
    Use();
    std::lock_guard<std::mutex> lock(job_.mu_);
    Pending& pending = pending_.at(request);
    if (pending.delay > 0) {
      --pending.delay;
      return std::nullopt;
    }
    if (pending.broadcast != nullptr) {
      if (job_.broadcast_.empty()) return std::nullopt;
      std::copy(job_.broadcast_.begin(), job_.broadcast_.end(), pending.broadcast);
    } else if (pending.receive) {
      // A sender that has died has no memory to read any more.
      if (job_.dead_[pending.sent->from]) return std::nullopt;
      if (pending.sent->size > 0) {
        std::memcpy(pending.into, pending.sent->bytes, pending.sent->size);
      }
      pending.sent->received = true;
    } else if (pending.sent != nullptr && !pending.sent->received) {
      return std::nullopt;
    }
    pending_.erase(request);
    return OkStatus();
  }

 private:
  struct Pending {
    std::shared_ptr<FakeJob::Sent> sent;
    bool receive = false;
    uint8_t* into = nullptr;
    uint8_t* broadcast = nullptr;
    unsigned delay = 0;
  };

  // A real MPI ends the process that calls it after its end.
  void Use() const { fabric::testing::Check(!finalized_, "MPI is called after MPI_Finalize"); }

  Request Add(const Pending& pending) {
    const auto request = static_cast<Request>(++last_);
    pending_[request] = pending;
    return request;
  }

  FakeJob& job_;
  const int rank_;
  const Says says_;
  std::minstd_rand random_;
  std::function<void()> before_finalize_;
  std::atomic<bool> finalized_{false};
  uintptr_t last_ = 0;
  // A broadcast that has ended here, and goes out with the next look for messages.
  std::vector<uint8_t> unsent_;
  std::map<Request, Pending> pending_;
  std::map<Message, std::shared_ptr<FakeJob::Sent>> matched_;
};

std::unique_ptr<Library> FakeJob::LibraryOf(int rank, Says says) {
  auto library = std::make_unique<Library>();
  library->path = "fake.so";
  library->version = "a fake";
  auto calls = std::make_unique<FakeCalls>(*this, rank, says);
  all_[rank] = calls.get();
  library->calls = std::move(calls);
  return library;
}

void FakeJob::Kill(int rank) {
  std::lock_guard<std::mutex> lock(mu_);
  dead_[rank] = true;
}

void FakeJob::FailProbes(int rank, bool fail) {
  std::lock_guard<std::mutex> lock(mu_);
  failing_[rank] = fail;
}

void FakeJob::Finalize(int rank) { (void)all_[rank]->Finalize(); }

bool FakeJob::Finalized(int rank) const { return all_[rank]->Finalized(); }

int FakeJob::Matched(int from) {
  std::lock_guard<std::mutex> lock(mu_);
  return matched_[from];
}

int FakeJob::Begun(int from) {
  std::lock_guard<std::mutex> lock(mu_);
  return begun_[from];
}

}  // namespace ar_grpc::mpi::testing
