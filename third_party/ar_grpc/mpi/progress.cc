// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/mpi/progress.h"

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <string>
#include <utility>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/mpi/naps.h"

namespace ar_grpc::mpi {
namespace {

// How long a channel that ends waits for what MPI has to be given back.
constexpr int64_t kGraceUs = 5 * 1000 * 1000;
// How long messages are expected that nobody wants.
constexpr int64_t kOwedUs = 60 * 1000 * 1000;
// How often they are looked for after that.
constexpr int64_t kLateUs = 1000 * 1000;
constexpr int kFinalizeLogS = 10;
// The thread's own end of its patience says more.
constexpr int64_t kMarginMs = 500;

int64_t NowUs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000 + now.tv_nsec / 1000;
}

timespec At(int64_t us) {
  timespec at;
  at.tv_sec = us / 1000000;
  at.tv_nsec = us % 1000000 * 1000;
  return at;
}

Status Finalized() { return Status(StatusCode::kUnavailable, "the program has finalized its MPI"); }

Status Ended() { return Status(StatusCode::kUnavailable, "the MPI channel has ended"); }

}  // namespace

Progress::Progress(uint64_t chunk_bytes, size_t most)
    : chunk_bytes_(chunk_bytes), most_(most), forks_(ForkCount()) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&changed_, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

Progress::~Progress() {
  Stop(/*finalize=*/true);
  // It would wait for threads that are the parent's.
  if (Here().ok()) pthread_cond_destroy(&changed_);
}

Status Progress::Start(std::unique_ptr<Library> library, int patience_ms) {
  const auto handed = std::make_shared<std::unique_ptr<Library>>(std::move(library));
  // It may outlive who waits here.
  StatusOr<Thread> thread =
      StartThread("ar-grpc mpi", [self = shared_from_this(), handed, patience_ms] {
        self->Run(std::move(*handed), patience_ms);
      });
  if (!thread.ok()) return thread.status();
  const timespec end = At(NowUs() + (patience_ms + kMarginMs) * int64_t{1000});
  std::unique_lock<std::mutex> lock(mu_);
  while (!started_) {
    if (pthread_cond_timedwait(&changed_, mu_.native_handle(), &end) == 0) continue;
    thread->Detach();
    stopping_ = true;
    return NotAllStarted("the", patience_ms);
  }
  thread_ = std::move(*thread);
  const Status status = *started_;
  lock.unlock();
  // It owns this, too, and as the last owner it would wait for itself.
  if (!status.ok()) thread_.Join();
  return status;
}

Status Progress::Here() const {
  if (ForkCount() == forks_) return OkStatus();
  return Status(StatusCode::kUnavailable, "this process is a fork of the MPI job's");
}

Status Progress::Post(Command* command) {
  const Status here = Here();
  if (!here.ok()) return here;
  std::lock_guard<std::mutex> lock(mu_);
  if (stopping_ || over_) return Ended();
  inbox_.push_back(std::move(*command));
  if (resting_) pthread_cond_broadcast(&changed_);
  return OkStatus();
}

Keep Progress::Admit(Keep keep) {
  if (++*admitted_ > most_) {
    --*admitted_;
    return nullptr;
  }
  // Shared with the count, which may outlive this.
  return Keep(admitted_.get(), [count = admitted_, keep = std::move(keep)](const void*) mutable {
    keep.reset();
    --*count;
  });
}

void Progress::Stop(bool finalize) {
  if (!Here().ok()) {
    thread_.Detach();  // the parent's
    return;
  }
  {
    std::unique_lock<std::mutex> lock(mu_);
    if (stopping_) return;
    finalize_ = finalize;
    stopping_ = true;
    pthread_cond_broadcast(&changed_);
    const timespec late = At(NowUs() + kFinalizeLogS * 1000000);
    bool said = !finalize || !started_ || !started_->ok();
    while (!over_ && started_) {
      if (said) {
        pthread_cond_wait(&changed_, mu_.native_handle());
      } else if (pthread_cond_timedwait(&changed_, mu_.native_handle(), &late) != 0) {
        said = true;
        Log(Severity::kInfo,
            "this process waits in MPI_Finalize for the other ranks of its MPI job to "
            "end");
      }
    }
  }
  thread_.Join();
}

void Progress::Run(std::unique_ptr<Library> library, int patience_ms) {
  // Else each nap takes 50 µs more.
  prctl(PR_SET_TIMERSLACK, 1000);
  Status status;
  if (library == nullptr) {
    StatusOr<std::unique_ptr<Library>> opened = OpenLibrary();
    status = opened.status();
    if (opened.ok()) library = std::move(*opened);
  }
  if (status.ok()) {
    StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Start(std::move(library), patience_ms);
    status = runtime.status();
    if (runtime.ok()) {
      runtime_ = std::move(*runtime);
      tags_ = std::make_unique<Tags>(runtime_->job().largest_tag);
    }
  }
  {
    std::lock_guard<std::mutex> lock(mu_);
    started_ = status;
    pthread_cond_broadcast(&changed_);
  }
  if (status.ok()) {
    Engine engine(runtime_->calls(), runtime_->communicator(), runtime_->job().size, chunk_bytes_,
                  *tags_, counts_);
    Work(engine);
    Finish(engine);
  }
  std::lock_guard<std::mutex> lock(mu_);
  over_ = true;
  pthread_cond_broadcast(&changed_);
}

void Progress::Work(Engine& engine) {
  std::vector<Command> commands;
  // What MPI's start has sent counts as moved: the other ranks may wait for the tail of it.
  int64_t moved_us = NowUs();
  while (true) {
    const int64_t now = NowUs();
    const Waiting waiting = {engine.waited_for(), engine.holding(), now < owed_until_us_};
    commands.clear();
    int64_t nap = Nap(waiting, now - moved_us);
    // A peer may come to send long after this end has given up, and nothing of it tells this
    // thread.
    if (nap == kForever && owed_until_us_ != 0) nap = kLateUs;
    const bool stop = Take(nap, &commands);
    bool moved = !commands.empty();
    const bool usable = runtime_->Use([&] {
      for (Command& command : commands) Do(engine, std::move(command));
      if (!stop) moved |= engine.Turn();
    });
    if (!usable) {
      for (Command& command : commands) {
        if (command.kind == Command::Kind::kStart) command.transfer->done(Finalized());
      }
      engine.EndAll(Finalized());
    }
    engine.RunEnds();
    if (stop) return;
    if (moved) moved_us = NowUs();
  }
}

void Progress::Do(Engine& engine, Command command) {
  switch (command.kind) {
    case Command::Kind::kStart:
      return engine.Start(std::move(command.transfer));
    case Command::Kind::kCancel:
      return engine.Cancel(command.id);
    case Command::Kind::kLose:
      return engine.Lose(command.rank);
    case Command::Kind::kForget:
      if (command.owed) owed_until_us_ = NowUs() + kOwedUs;
      return engine.Forget(command.rank, command.tag);
  }
}

// What came into the inbox before Stop was done; later there is nothing.
void Progress::Finish(Engine& engine) {
  engine.Close(Status(StatusCode::kCancelled, "the MPI channel ends"));
  engine.RunEnds();
  // MPI may still write memory that the engine holds.
  if (!finalize_) return engine.Abandon();
  const int64_t end = NowUs() + kGraceUs;
  bool moved = false;
  const auto turn = [&] { moved = engine.Turn(); };
  while (engine.holding() && !engine.any_lost() && NowUs() < end && runtime_->Use(turn)) {
    engine.RunEnds();
    if (moved) continue;
    const timespec nap = {0, 50000};
    nanosleep(&nap, nullptr);
  }
  if (!engine.holding() && !engine.any_lost()) return runtime_->Finalize();
  engine.Abandon();
}

bool Progress::Take(int64_t nap_us, std::vector<Command>* commands) {
  if (nap_us == 0) sched_yield();
  std::unique_lock<std::mutex> lock(mu_);
  if (nap_us != 0) {
    const timespec end = At(NowUs() + (nap_us == kForever ? 0 : nap_us));
    resting_ = true;
    while (inbox_.empty() && !stopping_) {
      if (nap_us == kForever) {
        pthread_cond_wait(&changed_, mu_.native_handle());
      } else if (pthread_cond_timedwait(&changed_, mu_.native_handle(), &end) != 0) {
        break;
      }
    }
    resting_ = false;
  }
  commands->swap(inbox_);
  return stopping_;
}

}  // namespace ar_grpc::mpi
