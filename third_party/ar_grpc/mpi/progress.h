// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_PROGRESS_H_
#define THIRD_PARTY_AR_GRPC_MPI_PROGRESS_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/base/thread.h"
#include "third_party/ar_grpc/mpi/engine.h"
#include "third_party/ar_grpc/mpi/runtime.h"
#include "third_party/ar_grpc/mpi/tags.h"

namespace ar_grpc::mpi {

// What a channel asks of its thread.
struct Command {
  enum class Kind { kStart, kCancel, kLose, kForget };
  Kind kind = Kind::kStart;
  std::unique_ptr<Transfer> transfer;  // kStart
  Id id = 0;                           // kCancel
  int rank = 0;                        // kLose, kForget
  int tag = 0;                         // kForget
  bool owed = false;                   // kForget: something may still come under it
};

// The thread that makes all of MPI's calls, and its inbox.
class Progress : public std::enable_shared_from_this<Progress> {
 public:
  Progress(uint64_t chunk_bytes, size_t most);
  ~Progress();
  Progress(const Progress&) = delete;

  // Starts the thread, which starts MPI, and waits for that; MPI_Init itself waits for the other
  // ranks. `library` may be null. After an error nothing else may be called.
  Status Start(std::unique_ptr<Library> library, int patience_ms);
  // kUnavailable: the thread has ended, or this is a forked child. *command stays whole then.
  Status Post(Command* command);
  // Not kOk: this process is a forked child. Its thread is not there, and perhaps a mutex locked
  // for ever; to be asked before any is locked.
  Status Here() const;
  // As Channel::Stop, and as Channel::Leave where it is not to finalize MPI.
  void Stop(bool finalize);

  // After Start.
  const Runtime& runtime() const { return *runtime_; }
  Tags& tags() { return *tags_; }
  const Counts& counts() const { return counts_; }
  Id NewId() { return ++last_id_; }
  // Counts a transfer that has begun, until the result goes; null: there are too many.
  Keep Admit(Keep keep);

 private:
  void Run(std::unique_ptr<Library> library, int patience_ms);
  void Work(Engine& engine);
  void Finish(Engine& engine);
  void Do(Engine& engine, Command command);
  // Waits for a command, Stop, or `nap_us` to pass. Whether Stop was called.
  bool Take(int64_t nap_us, std::vector<Command>* commands);

  const uint64_t chunk_bytes_;
  const size_t most_;
  const uint32_t forks_;
  std::atomic<Id> last_id_{0};
  // Of transfers whose memory is not given back yet.
  const std::shared_ptr<std::atomic<size_t>> admitted_ = std::make_shared<std::atomic<size_t>>(0);
  Counts counts_;
  // Written by the thread before it is started_.
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<Tags> tags_;
  // The thread's alone: until when (by its clock, in µs) to look for messages that are nobody's.
  int64_t owed_until_us_ = 0;

  std::mutex mu_;
  // Not std::condition_variable: its wait asks for a newer libstdc++ than all else here.
  pthread_cond_t changed_;  // by CLOCK_MONOTONIC
  // Guarded by mu_.
  std::vector<Command> inbox_;
  bool resting_ = false;
  bool stopping_ = false;
  bool finalize_ = true;  // not written once it is stopping_
  bool over_ = false;
  std::optional<Status> started_;

  Thread thread_;
};

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_PROGRESS_H_
