// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/mpi/channel.h"

#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/mpi/progress.h"

namespace ar_grpc::mpi {

Tag& Tag::operator=(Tag&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  progress_ = std::move(other.progress_);
  rank_ = other.rank_;
  value_ = other.value_;
  used_up_ = std::move(other.used_up_);
  return *this;
}

void Tag::GiveBack() {
  if (progress_ == nullptr) return;
  if (!progress_->Here().ok()) return progress_.reset();
  const bool used_up = *used_up_;
  progress_->tags().GiveBack(rank_, value_, used_up);
  Command command;
  command.kind = Command::Kind::kForget;
  command.rank = rank_;
  command.tag = value_;
  command.owed = !used_up;
  // At the end there is nothing to forget.
  (void)progress_->Post(&command);
  progress_.reset();
}

StatusOr<std::unique_ptr<Channel>> Channel::Start(const Options& options,
                                                  std::unique_ptr<Library> library) {
  auto progress = std::make_shared<Progress>(options.chunk_bytes, options.most);
  const Status status = progress->Start(std::move(library), options.patience_ms);
  if (!status.ok()) return status;
  return std::unique_ptr<Channel>(new Channel(std::move(progress)));
}

namespace {
std::atomic<const Channel*> started{nullptr};
}  // namespace

const Channel* Channel::IfStarted() { return started; }

StatusOr<Channel*> Channel::Get() {
  // For ever: other threads may use it while the process exits.
  static const auto* const channel = new StatusOr<std::unique_ptr<Channel>>(Start(Options()));
  if (!channel->ok()) return channel->status();
  // Not std::atexit, whose functions are not told how the program ends. An exception that nobody
  // has caught, too, ends a Python program by an exit status, once it is printed.
  static const int registered = on_exit(
      [](int status, void*) {
        if (!channel->ok()) return;
        // A rank that fails does not wait in MPI_Finalize for the others, which wait for it.
        if ((status & 0xff) != 0) return (**channel)->Leave();
        (**channel)->Stop();
      },
      nullptr);
  (void)registered;
  started = (*channel)->get();
  return (*channel)->get();
}

Channel::~Channel() { Stop(); }

void Channel::Stop() { progress_->Stop(/*finalize=*/true); }

void Channel::Leave() { progress_->Stop(/*finalize=*/false); }

const Job& Channel::job() const { return progress_->runtime().job(); }

const Library& Channel::library() const { return progress_->runtime().library(); }

const Counts& Channel::counts() const { return progress_->counts(); }

Status Channel::Enough(int tasks) const {
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  return EnoughRanks(job(), library(), LauncherOf(environment), tasks);
}

StatusOr<Tag> Channel::Draw(int rank) {
  if (rank < 0 || rank >= job().size) {
    return Status(StatusCode::kInvalidArgument, "the MPI job has no rank " + std::to_string(rank));
  }
  const Status here = progress_->Here();
  if (!here.ok()) return here;
  StatusOr<int> value = progress_->tags().Draw(rank);
  if (!value.ok()) return value.status();
  Tag tag;
  tag.progress_ = progress_;
  tag.rank_ = rank;
  tag.value_ = *value;
  tag.used_up_ = std::make_shared<std::atomic<bool>>(false);
  return tag;
}

Id Channel::Begin(std::unique_ptr<Transfer> transfer) {
  const Id id = transfer->id = progress_->NewId();
  Command command;
  command.transfer = std::move(transfer);
  Transfer& begun = *command.transfer;
  if (begun.tag < 0 || begun.tag > job().largest_tag) {
    begun.done(Status(StatusCode::kInvalidArgument, "MPI has no tag " + std::to_string(begun.tag) +
                                                        " here, only up to " +
                                                        std::to_string(job().largest_tag)));
    return id;
  }
  begun.keep = progress_->Admit(std::move(begun.keep));
  if (begun.keep == nullptr) {
    begun.done(Status(StatusCode::kResourceExhausted, "too many MPI transfers at a time"));
    return id;
  }
  const Status status = progress_->Post(&command);
  if (!status.ok()) command.transfer->done(status);
  return id;
}

Id Channel::Send(int rank, int tag, const void* bytes, uint64_t size, Keep keep, Done done) {
  auto transfer = std::make_unique<Transfer>();
  transfer->send = true;
  transfer->rank = rank;
  transfer->tag = tag;
  transfer->bytes = const_cast<uint8_t*>(static_cast<const uint8_t*>(bytes));
  transfer->size = size;
  transfer->keep = std::move(keep);
  transfer->done = std::move(done);
  return Begin(std::move(transfer));
}

Id Channel::Receive(const Tag& tag, void* into, uint64_t size, Keep keep, Done done) {
  if (tag.progress_ != progress_) {
    done(Status(StatusCode::kInvalidArgument, "the tag is none of this MPI channel's"));
    return progress_->NewId();
  }
  auto transfer = std::make_unique<Transfer>();
  transfer->rank = tag.rank_;
  transfer->tag = tag.value_;
  transfer->bytes = static_cast<uint8_t*>(into);
  transfer->size = size;
  transfer->keep = std::move(keep);
  transfer->done = [used_up = tag.used_up_, done = std::move(done)](Status status) {
    if (status.ok()) *used_up = true;
    done(std::move(status));
  };
  return Begin(std::move(transfer));
}

Status Channel::SendAnnounced(int rank, int tag, const void* bytes, uint64_t size, Keep keep,
                              Done done) {
  struct Begun {
    std::mutex mu;
    // Guarded by mu.
    bool announced = false;
    Status refused;
  };
  const auto begun = std::make_shared<Begun>();
  Send(rank, tag, bytes, size, std::move(keep),
       [begun, rank, done = std::move(done)](Status ended) {
         if (ended.ok()) return done(std::move(ended));
         {
           std::lock_guard<std::mutex> lock(begun->mu);
           if (!begun->announced) {
             begun->refused = std::move(ended);
             return;
           }
         }
         done(Status(StatusCode::kUnavailable, "what was sent to rank " + std::to_string(rank) +
                                                   " of the MPI job is lost: " + ended.message()));
       });
  std::lock_guard<std::mutex> lock(begun->mu);
  begun->announced = true;
  return begun->refused;
}

void Channel::Cancel(Id id) {
  Command command;
  command.kind = Command::Kind::kCancel;
  command.id = id;
  (void)progress_->Post(&command);
}

void Channel::Lose(int rank) {
  Command command;
  command.kind = Command::Kind::kLose;
  command.rank = rank;
  (void)progress_->Post(&command);
}

}  // namespace ar_grpc::mpi
