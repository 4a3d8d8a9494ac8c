// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_ENGINE_H_
#define THIRD_PARTY_AR_GRPC_MPI_ENGINE_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/mpi/calls.h"
#include "third_party/ar_grpc/mpi/tags.h"

namespace ar_grpc::mpi {

// The end of a transfer. Runs once, holding no lock, in the progress thread; it must not block.
using Done = std::function<void(Status)>;
// Owns a transfer's memory; held until MPI has given that back.
using Keep = std::shared_ptr<const void>;
using Id = uint64_t;

struct Transfer {
  Id id = 0;
  bool send = false;
  int rank = 0;
  int tag = 0;
  uint8_t* bytes = nullptr;  // a send's are only read
  uint64_t size = 0;
  Keep keep;
  Done done;  // empty: nobody waits any more
  uint64_t chunk = 0;
  std::optional<Request> request;  // of the chunk that MPI has now
};

// What can be read in any thread.
struct Counts {
  std::atomic<uint64_t> waited{0};      // transfers that somebody waits for
  std::atomic<uint64_t> kept{0};        // those that nobody waits for, whose memory MPI still has
  std::atomic<uint64_t> kept_bytes{0};  // theirs
  std::atomic<uint64_t> strays{0};      // messages that were nobody's, so far
  std::atomic<uint64_t> turns{0};       // how often MPI was let work, so far
  std::atomic<uint64_t> sent{0};        // bytes of sends that have ended well, so far
  std::atomic<uint64_t> received{0};    // the same of receives
};

// The transfers of a process, and nothing of threads: all calls come from one.
//
// No receive is posted before its message has come, but each message is matched first (MPI_Improbe)
// and its size compared. So MPI never has memory of a receive that may wait for ever, and no
// message is cut off: MPICH 4.0 and Open MPI leave the sender of one that is waiting (measured).
// What this costs is a copy of messages of up to some 64 KiB, which MPI sends unasked. A transfer
// has at most one message on the way: then all of its chunks come in order.
class Engine {
 public:
  // All of them outlive it. `ranks` is the job's size.
  Engine(Calls& calls, Communicator communicator, int ranks, uint64_t chunk_bytes, Tags& tags,
         Counts& counts);

  void Start(std::unique_ptr<Transfer> transfer);
  // Its end is kCancelled, at once. Memory that MPI has stays with it until the chunk's end.
  void Cancel(Id id);
  // The end of all of a rank's transfers is kUnavailable, those that come later, too.
  void Lose(int rank);
  void EndAll(const Status& status);
  // The tag was given back: what came under it is nobody's.
  void Forget(int rank, int tag);

  // The end of all transfers, for good: what has come and what comes from now on is nobody's.
  void Close(const Status& status);

  // The end of MPI in this process with something still on the way: its memory is kept for ever.
  void Abandon();

  // Lets MPI work once, without waiting. Whether anything has come or ended.
  bool Turn();

  // Runs the `done` of what has ended since, and gives its memory back. Apart from all else, since
  // the caller holds a lock while the engine calls MPI, and these must find none held.
  void RunEnds();

  // Whether somebody waits for what MPI does.
  bool waited_for() const { return counts_.waited.load(std::memory_order_relaxed) > 0; }
  // Whether MPI has memory of ours or a message of a peer's.
  // Without messages that came before their receive: there are none after Close.
  bool holding() const { return !flying_.empty() || !strays_.empty() || draining_.has_value(); }
  // Then MPI may hold something for ever.
  bool any_lost() const { return !lost_.empty(); }

 private:
  // Of a direction, a rank and a tag: at most one transfer.
  using Key = uint64_t;
  static Key KeyOf(bool send, int rank, int tag);

  struct Draining {
    int rank = 0;
    Request request{};
    std::unique_ptr<uint8_t[]> into;
  };

  // An end that RunEnds tells.
  struct Over {
    Done done;  // empty: nobody waits
    Status status;
    std::unique_ptr<Transfer> transfer;  // null: MPI still has its memory
  };

  Status Check(const Transfer& transfer) const;
  void NextSend(Transfer& transfer);
  void Land(Transfer& transfer, const Arrival& arrival);
  void LandEarly(Transfer& transfer);
  void Chunked(Transfer& transfer);
  void End(Transfer& transfer, Status status);
  void Tell(Transfer& transfer, Status status, std::unique_ptr<Transfer> owned);
  void StopWaiting(Transfer& transfer, Status status);
  bool TestFlying();
  bool TakeArrivals();
  void ProbeFailed(const Status& status);
  void Sort(const Arrival& arrival);
  bool Drain();

  Calls& calls_;
  const Communicator communicator_;
  const int ranks_;
  const uint64_t chunk_bytes_;
  Tags& tags_;
  Counts& counts_;
  std::unordered_map<Id, std::unique_ptr<Transfer>> transfers_;
  std::unordered_map<Key, Id> by_key_;
  // Those that have a request.
  std::vector<Id> flying_;
  // Messages that came before their receive.
  std::unordered_map<Key, std::deque<Arrival>> early_;
  // Messages that are nobody's: they are received all the same, since their senders wait.
  std::deque<Arrival> strays_;
  std::optional<Draining> draining_;
  // Of lost ranks: MPI may have this memory for ever. One for each rank at most.
  std::vector<Draining> stuck_;
  std::unordered_set<int> lost_;
  bool closed_ = false;
  bool failure_logged_ = false;
  // Since when each look for messages has failed while somebody waited.
  std::optional<std::chrono::steady_clock::time_point> failing_since_;
  std::vector<Over> over_;
};

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_ENGINE_H_
