// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/verbs/introduction.h"

#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "third_party/ar_grpc/base/reactor.h"

namespace ar_grpc::verbs {
namespace {

using Call = std::function<void(const Introduce&, std::function<void(StatusOr<Introduced>)>)>;
using MaybeConnection = StatusOr<std::unique_ptr<fabric::Connection>>;

class Introduction : public std::enable_shared_from_this<Introduction> {
 public:
  Introduction(fabric::Context* context, Call call, std::function<void()> ended,
               std::function<void(StatusOr<NamedLink>)> made)
      : context_(context),
        call_(std::move(call)),
        ended_(std::move(ended)),
        made_(std::move(made)) {}

  void Begin() {
    const auto self = shared_from_this();
    fabric::AttachEvents events;
    events.send = [self](std::string frame) {
      {
        std::lock_guard<std::mutex> lock(self->mu_);
        self->frames_.push_back(std::move(frame));
      }
      self->Step();
    };
    events.done = [self](MaybeConnection connection) {
      {
        std::lock_guard<std::mutex> lock(self->mu_);
        self->connection_ = std::move(connection);
        // Over RoCE the peer's end is made by what this one has sent last, so it has news.
        self->peer_has_news_ = true;
      }
      self->Step();
    };
    StatusOr<std::unique_ptr<fabric::Attachment>> attachment = context_->Connect(std::move(events));
    if (!attachment.ok()) return End(attachment.status());
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (over_) return;  // its events have come before that
      attachment_ = std::move(*attachment);
      timer_ = Reactor::Get().RunAfter(kMostSeconds * 1000, [self] {
        self->End(Status(StatusCode::kUnavailable,
                         "no RDMA connection within " + std::to_string(kMostSeconds) + " s"));
      });
    }
    Step();
  }

 private:
  // Goes on with the next call, where there is a frame to bring or the peer may have news; or ends
  // it, where all is there.
  void Step() {
    std::optional<MaybeConnection> over;
    Introduce introduce{name_, ""};
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (over_ || calling_) return;
      // The peer must be able to find its end before it is asked for a tensor.
      const bool whole = connection_.has_value() && frames_.empty() && peer_made_;
      if (whole || (connection_.has_value() && !connection_->ok())) {
        over = std::exchange(connection_, std::nullopt);
      } else if (!frames_.empty()) {
        introduce.frame = std::move(frames_.front());
        frames_.pop_front();
      } else if (!peer_has_news_) {
        return;
      }
      calling_ = true;
      peer_has_news_ = false;
    }
    if (over.has_value()) return End(std::move(*over));
    call_(introduce, [self = shared_from_this()](StatusOr<Introduced> introduced) {
      self->OnAnswer(std::move(introduced));
    });
  }

  void OnAnswer(StatusOr<Introduced> introduced) {
    if (!introduced.ok()) return End(introduced.status());
    std::shared_ptr<fabric::Attachment> attachment;
    {
      std::lock_guard<std::mutex> lock(mu_);
      peer_made_ = peer_made_ || introduced->made;
      attachment = attachment_;
    }
    // Before the next call: frames are taken by one thread at a time.
    if (!introduced->frame.empty() && attachment) attachment->TakeFrame(introduced->frame);
    {
      std::lock_guard<std::mutex> lock(mu_);
      calling_ = false;
    }
    Step();
    // Where neither end has more to say now, the peer is asked again. Not once it has made its own.
    Reactor::Get().RunAfter(kPatienceMs, [self = shared_from_this()] {
      {
        std::lock_guard<std::mutex> lock(self->mu_);
        // A call that is under way sets a timer of its own when it ends.
        if (self->peer_made_ || self->calling_) return;
        self->peer_has_news_ = true;
      }
      self->Step();
    });
  }

  void End(MaybeConnection connection) {
    std::shared_ptr<fabric::Attachment> attachment;
    std::optional<MaybeConnection> unwanted;  // of one that is too late
    uint64_t timer = 0;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (std::exchange(over_, true)) return;
      attachment.swap(attachment_);
      unwanted.swap(connection_);
      timer = timer_;
    }
    Reactor::Get().Cancel(timer);
    // It may be in one of its own events.
    if (attachment) static_cast<void>(StartOnReactor([gone = std::move(attachment)] {}));
    if (!connection.ok()) return made_(connection.status());
    StatusOr<std::shared_ptr<Link>> link =
        Link::Start(std::move(*connection), std::make_shared<LandingPool>(context_), ended_);
    if (!link.ok()) return made_(link.status());
    made_(NamedLink{name_, std::move(*link)});
  }

  fabric::Context* const context_;
  const Call call_;
  const std::function<void()> ended_;
  const std::function<void(StatusOr<NamedLink>)> made_;
  const Token name_ = NewToken();
  std::mutex mu_;
  // Guarded by mu_.
  std::shared_ptr<fabric::Attachment> attachment_;
  std::deque<std::string> frames_;  // for the peer
  std::optional<MaybeConnection> connection_;
  uint64_t timer_ = 0;
  bool peer_made_ = false;
  bool calling_ = false;
  // Whether it is asked without a frame, too; after the call that is under way, where there is one:
  // that may have left before there was news. It begins with a call.
  bool peer_has_news_ = true;
  bool over_ = false;
};

}  // namespace

void MakeLink(fabric::Context* context, Call call, std::function<void()> ended,
              std::function<void(StatusOr<NamedLink>)> made) {
  std::make_shared<Introduction>(context, std::move(call), std::move(ended), std::move(made))
      ->Begin();
}

}  // namespace ar_grpc::verbs
