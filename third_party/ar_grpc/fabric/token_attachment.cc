// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/token_attachment.h"

#include <mutex>
#include <utility>

#include "third_party/ar_grpc/base/os.h"

namespace ar_grpc::fabric {
namespace {

// What outlives an attachment: a callback that is under way when it is destroyed holds this. After
// the end, which is done() or giving up, no event begins.
class Progress {
 public:
  explicit Progress(AttachEvents events) : events_(std::move(events)) {}

  void Send(std::string frame) {
    std::function<void(std::string)> send;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (ended_) return;
      send = events_.send;
    }
    if (send) send(std::move(frame));
  }

  // Not for the owner any more: a connection that comes too late is closed.
  void Finish(StatusOr<std::unique_ptr<Connection>> result) {
    if (const AttachEvents events = End(); events.done) events.done(std::move(result));
  }

  void GiveUp() { End(); }

  // `stop` is called when this ends, or at once where it has ended.
  void OnEnd(std::function<void()> stop) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!ended_) {
        stop_ = std::move(stop);
        return;
      }
    }
    if (stop) stop();
  }

 private:
  // The events, for the first who asks. What they hold is destroyed without the lock.
  AttachEvents End() {
    AttachEvents events;
    std::function<void()> stop;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (ended_) return {};
      ended_ = true;
      std::swap(events, events_);
      std::swap(stop, stop_);
    }
    if (stop) stop();
    return events;
  }

  std::mutex mu_;
  // Guarded by mu_.
  AttachEvents events_;
  std::function<void()> stop_;
  bool ended_ = false;
};

Status Unexpected() {
  return Status(StatusCode::kInvalidArgument, "the peer sent a frame that nobody waits for");
}

// In a forked child nothing of the parent's attachment runs, and its locks may be held for ever.
class ServerAttachment final : public Attachment {
 public:
  explicit ServerAttachment(std::shared_ptr<Progress> progress)
      : progress_(std::move(progress)), fork_count_(ForkCount()) {}
  ~ServerAttachment() override {
    if (ForkCount() == fork_count_) progress_->GiveUp();
  }
  void TakeFrame(const std::string&) override {
    // Held here: `done` may destroy this attachment.
    const std::shared_ptr<Progress> progress = progress_;
    progress->Finish(Unexpected());
  }

 private:
  const std::shared_ptr<Progress> progress_;
  const uint32_t fork_count_;
};

class ClientAttachment final : public Attachment {
 public:
  ClientAttachment(ConnectByFrame connect, AttachEvents events)
      : connect_(std::move(connect)),
        progress_(std::make_shared<Progress>(std::move(events))),
        fork_count_(ForkCount()) {}
  ~ClientAttachment() override {
    if (ForkCount() == fork_count_) progress_->GiveUp();
  }
  void TakeFrame(const std::string& bytes) override {
    // Held here: `done` may destroy this attachment.
    const std::shared_ptr<Progress> progress = progress_;
    const ConnectByFrame connect = std::exchange(connect_, nullptr);
    if (!connect) return progress->Finish(Unexpected());
    const StatusOr<TokenFrame> frame = DecodeTokenFrame(bytes);
    if (!frame.ok()) return progress->Finish(frame.status());
    progress->OnEnd(connect(*frame, [progress](StatusOr<std::unique_ptr<Connection>> result) {
      progress->Finish(std::move(result));
    }));
  }

 private:
  ConnectByFrame connect_;
  const std::shared_ptr<Progress> progress_;
  const uint32_t fork_count_;
};

}  // namespace

StatusOr<std::unique_ptr<Attachment>> AcceptByToken(std::shared_ptr<TokenListener> listener,
                                                    AttachEvents events) {
  TokenFrame frame;
  frame.address = listener->address();
  frame.token = NewToken();
  if (frame.address.size() > kLargestTokenAddress) {
    return Status(StatusCode::kInternal, "too long for a frame: " + frame.address);
  }
  const auto progress = std::make_shared<Progress>(std::move(events));
  auto attachment = std::make_unique<ServerAttachment>(progress);
  progress->OnEnd([listener, token = frame.token] { listener->Forget(token); });
  listener->Expect(frame.token, [progress](StatusOr<std::unique_ptr<Connection>> result) {
    progress->Finish(std::move(result));
  });
  progress->Send(EncodeTokenFrame(frame));
  return std::unique_ptr<Attachment>(std::move(attachment));
}

std::unique_ptr<Attachment> ConnectByToken(ConnectByFrame connect, AttachEvents events) {
  return std::make_unique<ClientAttachment>(std::move(connect), std::move(events));
}

}  // namespace ar_grpc::fabric
