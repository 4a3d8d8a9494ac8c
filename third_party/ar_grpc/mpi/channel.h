// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_CHANNEL_H_
#define THIRD_PARTY_AR_GRPC_MPI_CHANNEL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/mpi/chunks.h"
#include "third_party/ar_grpc/mpi/engine.h"
#include "third_party/ar_grpc/mpi/runtime.h"

namespace ar_grpc::mpi {

class Progress;

// A tag that is this process's to receive one transfer under. It is drawn before the peer is told
// of it, and held until the peer has sent or will not any more: what comes under it when it has
// gone is received and dropped.
class Tag {
 public:
  Tag() = default;
  Tag(Tag&&) noexcept = default;
  Tag& operator=(Tag&& other) noexcept;
  ~Tag() { GiveBack(); }

  int rank() const { return rank_; }
  int value() const { return value_; }

 private:
  friend class Channel;
  void GiveBack();

  // Null: it is none.
  std::shared_ptr<Progress> progress_;
  int rank_ = 0;
  int value_ = 0;
  // A transfer under it has ended well.
  std::shared_ptr<std::atomic<bool>> used_up_;
};

// Messages of any size between the ranks of this process's MPI job. No call waits for MPI: one
// thread ("ar-grpc mpi") makes all of MPI's calls, and sleeps when nothing is on the way. It is one
// also because few MPIs are used, and tested, by several threads at once. Thread-safe.
//
// How it waits while something is on the way: MPI has nothing to sleep on, so it is polled, at
// first without a pause and then with naps that grow (naps.h).
class Channel {
 public:
  struct Options {
    int patience_ms = kPatienceMs;
    // For tests; the same in all ranks.
    uint64_t chunk_bytes = kChunkBytes;
    // Transfers at a time, begun and waiting; more are kResourceExhausted.
    size_t most = 65536;
  };

  // Waits for all ranks of the job to do the same, for `patience_ms` at most. A process can have
  // one. `library` is for tests; null: the one that OpenLibrary gives.
  static StatusOr<std::unique_ptr<Channel>> Start(const Options& options,
                                                  std::unique_ptr<Library> library = nullptr);
  // The process's own: started by the first call, ended when the process exits, by Leave where its
  // exit status is not 0. Its error stays.
  static StatusOr<Channel*> Get();
  // The same where Get has started it; else null.
  static const Channel* IfStarted();
  // Stop()s. What still waits ends with kCancelled.
  ~Channel();
  Channel(const Channel&) = delete;

  const Job& job() const;
  const Library& library() const;
  // kFailedPrecondition, with the reason and the cure, where the job has fewer ranks.
  Status Enough(int tasks) const;

  // A tag for a message from `rank`.
  StatusOr<Tag> Draw(int rank);
  // Both return at once, and `done` runs once, in any thread, perhaps before they return; it must
  // not block. `keep`, which owns the memory, is held until MPI has given that back, which may be
  // after `done`, and where a rank is lost never. A send has ended when the peer has received it.
  //
  // kInvalidArgument: no such rank or tag, a tag that is in use, or a message of another size than
  // `size`; kUnavailable: the rank is lost, or MPI says so; kResourceExhausted: too many at a time.
  Id Send(int rank, int tag, const void* bytes, uint64_t size, Keep keep, Done done);
  Id Receive(const Tag& tag, void* into, uint64_t size, Keep keep, Done done);
  // A Send that the answer to a call announces. What it fails of before this returns is returned,
  // to be the answer instead, and `done` does not run. Else `done` runs once, as above, and its
  // error is always kUnavailable and names the rank: the bytes that were announced are lost.
  Status SendAnnounced(int rank, int tag, const void* bytes, uint64_t size, Keep keep, Done done);
  // Its `done` runs soon, with kCancelled unless it has run. A cancelled send is still sent: what
  // has begun cannot be taken back, and its receiver waits for it.
  void Cancel(Id id);
  // The rank's process is known to have died (by its TCP connections; MPI need not notice): what is
  // on the way to and from it, and comes later, ends with kUnavailable.
  void Lose(int rank);

  const Counts& counts() const;

  // Ends all transfers, and MPI where this channel has initialized it: that waits for the other
  // ranks to end, too. MPI is left as it is where a rank is lost or MPI still has memory after some
  // seconds, since it might never return.
  void Stop();
  // The same for a program that has failed: MPI is left as it is at once, as by a rank that is
  // killed. MPI_Finalize would wait for the others, which may wait for what this one was to do, and
  // the launcher, which ends the job of a rank that has failed, would not learn of it.
  void Leave();

 private:
  Id Begin(std::unique_ptr<Transfer> transfer);
  explicit Channel(std::shared_ptr<Progress> progress) : progress_(std::move(progress)) {}

  const std::shared_ptr<Progress> progress_;
};

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_CHANNEL_H_
