// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/verbs/acceptor.h"

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/verbs/introduction.h"

namespace ar_grpc::verbs {
namespace {

// How long one is remembered whose receiver has heard how it ended.
constexpr int kLingerMs = 1000;

}  // namespace

// One connection in the making. Its answers go by way of the reactor: what an attachment says last
// over iWARP comes in two events, and one answer has room for both.
class Acceptor::Pending : public std::enable_shared_from_this<Pending> {
 public:
  // `made` takes the connection, and returns why there is no link of it; `over` runs when the
  // receiver has heard how it ended.
  Status Begin(fabric::Context* context,
               std::function<Status(StatusOr<std::unique_ptr<fabric::Connection>>)> made,
               std::function<void()> over) {
    over_ = std::move(over);
    fabric::AttachEvents events;
    events.send = [self = shared_from_this()](std::string frame) {
      {
        std::lock_guard<std::mutex> lock(self->mu_);
        self->frames_.push_back(std::move(frame));
      }
      self->AnswerIn(0, false);
    };
    events.done = [self = shared_from_this(),
                   made](StatusOr<std::unique_ptr<fabric::Connection>> connection) {
      // First the link can be found, then the receiver hears of it.
      const Status status = made(std::move(connection));
      {
        std::lock_guard<std::mutex> lock(self->mu_);
        self->made_ = status;
      }
      self->AnswerIn(0, false);
    };
    StatusOr<std::unique_ptr<fabric::Attachment>> attachment = context->Accept(std::move(events));
    if (!attachment.ok()) return attachment.status();
    std::lock_guard<std::mutex> lock(mu_);
    if (!given_up_) attachment_ = std::move(*attachment);
    return Status();
  }

  void Take(const std::string& frame, Answer answer) {
    std::shared_ptr<fabric::Attachment> attachment;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!answer_ && !busy_) {
        answer_ = std::exchange(answer, nullptr);
        attachment = attachment_;
        busy_ = true;
      }
    }
    // One call at a time, as each answer follows from what its call brought.
    if (answer) return answer(Status(StatusCode::kFailedPrecondition, "a call is under way"));
    if (!frame.empty() && attachment != nullptr) attachment->TakeFrame(frame);
    {
      std::lock_guard<std::mutex> lock(mu_);
      busy_ = false;
    }
    AnswerIn(0, false);
    AnswerIn(kPatienceMs, true);
  }

  // To be called by the one who drops it.
  void GiveUp() {
    std::shared_ptr<fabric::Attachment> attachment;
    Answer answer;
    {
      std::lock_guard<std::mutex> lock(mu_);
      given_up_ = true;
      attachment = std::move(attachment_);
      answer.swap(answer_);
    }
    if (answer) answer(Status(StatusCode::kUnavailable, "the introduction was given up"));
  }

 private:
  // `empty`: also where there is nothing to say.
  void AnswerIn(int delay_ms, bool empty) {
    const uint64_t id = Reactor::Get().RunAfter(
        delay_ms, [self = shared_from_this(), empty] { self->AnswerNow(empty); });
    if (id == 0) AnswerNow(empty);
  }

  void AnswerNow(bool empty) {
    Answer answer;
    Introduced introduced;
    Status failed;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!answer_ || busy_ || (frames_.empty() && !made_.has_value() && !empty)) return;
      if (!frames_.empty()) {
        introduced.frame = std::move(frames_.front());
        frames_.pop_front();
      }
      introduced.made = made_.has_value() && made_->ok() && frames_.empty();
      if (made_.has_value()) failed = *made_;
      answer.swap(answer_);
    }
    if (introduced.made || !failed.ok()) over_();
    if (failed.ok()) return answer(std::move(introduced));
    answer(std::move(failed));
  }

  std::function<void()> over_;  // set by Begin
  std::mutex mu_;
  // Guarded by mu_.
  bool given_up_ = false;
  bool busy_ = false;  // a frame is being taken
  std::shared_ptr<fabric::Attachment> attachment_;
  std::deque<std::string> frames_;
  std::optional<Status> made_;
  Answer answer_;
};

std::shared_ptr<Acceptor::Pending> Acceptor::FindPending(const Token& name, Status* why) {
  std::shared_ptr<Pending> pending;
  {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = pending_.find(name);
    if (found != pending_.end()) return found->second;
    if (links_.count(name) > 0) {
      *why = Status(StatusCode::kFailedPrecondition, "there is a connection of this name");
    } else if (closed_) {
      *why = Status(StatusCode::kUnavailable, "the server is being shut down");
    } else if (pending_.size() >= kMostPending) {
      *why = Status(StatusCode::kResourceExhausted, "too many introductions at a time");
    }
    if (!why->ok()) return nullptr;
    pending = pending_[name] = std::make_shared<Pending>();
  }
  const std::weak_ptr<Acceptor> weak = weak_from_this();
  *why = pending->Begin(
      context_,
      [weak, name](StatusOr<std::unique_ptr<fabric::Connection>> connection) {
        const auto self = weak.lock();
        if (!self) return Status(StatusCode::kUnavailable, "the server has been shut down");
        return self->OnMade(name, std::move(connection));
      },
      [weak, name, of = std::weak_ptr<Pending>(pending)] {
        if (const auto self = weak.lock()) self->DropIn(kLingerMs, name, of.lock());
      });
  DropIn(why->ok() ? kMostSeconds * 1000 : 0, name, pending);
  return why->ok() ? pending : nullptr;
}

void Acceptor::DropIn(int delay_ms, const Token& name, const std::shared_ptr<Pending>& pending) {
  const auto drop = [weak = weak_from_this(), name, pending] {
    if (const auto self = weak.lock()) {
      std::lock_guard<std::mutex> lock(self->mu_);
      const auto found = self->pending_.find(name);
      if (found != self->pending_.end() && found->second == pending) self->pending_.erase(found);
    }
    pending->GiveUp();
  };
  if (Reactor::Get().RunAfter(delay_ms, drop) == 0) drop();
}

void Acceptor::Introduce(const verbs::Introduce& introduce, Answer answer) {
  Status why;
  const std::shared_ptr<Pending> pending = FindPending(introduce.link, &why);
  if (!pending) return answer(std::move(why));
  pending->Take(introduce.frame, std::move(answer));
}

Status Acceptor::OnMade(const Token& name,
                        StatusOr<std::unique_ptr<fabric::Connection>> connection) {
  if (!connection.ok()) return connection.status();
  // Which link has ended; Start tells it only when that may have happened already.
  const auto which = std::make_shared<std::atomic<const Link*>>(nullptr);
  StatusOr<std::shared_ptr<Link>> link =
      Link::Start(std::move(*connection), nullptr, [weak = weak_from_this(), name, which] {
        if (const auto self = weak.lock()) self->OnEnded(name, *which);
      });
  if (!link.ok()) return link.status();
  *which = link->get();
  bool closed = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    closed = closed_;
    if (!closed && !links_.try_emplace(name, *link).second) {
      return Status(StatusCode::kFailedPrecondition, "there is a connection of this name");
    }
  }
  if (closed) (*link)->End(Status(StatusCode::kUnavailable, "the server has been shut down"));
  const Status status = (*link)->status();
  // It may have ended before it could be found.
  if (!status.ok()) OnEnded(name, link->get());
  return status;
}

void Acceptor::OnEnded(const Token& name, const Link* link) {
  std::shared_ptr<Link> gone;  // ends without the lock
  {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = links_.find(name);
    if (found == links_.end() || found->second.get() != link) return;
    gone = std::move(found->second);
    links_.erase(found);
  }
  ended_(name);
}

std::shared_ptr<Link> Acceptor::Find(const Token& link) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : found->second;
}

void Acceptor::EndLinks(const Status& why) {
  std::vector<std::shared_ptr<Link>> links;
  {
    std::lock_guard<std::mutex> lock(mu_);
    for (const auto& [name, link] : links_) links.push_back(link);
  }
  for (const std::shared_ptr<Link>& link : links) link->End(why);
}

void Acceptor::Close() {
  std::map<Token, std::shared_ptr<Pending>> pending;
  {
    std::lock_guard<std::mutex> lock(mu_);
    closed_ = true;
    pending.swap(pending_);
  }
  for (const auto& [name, one] : pending) one->GiveUp();
  EndLinks(Status(StatusCode::kUnavailable, "the server is being shut down"));
}

}  // namespace ar_grpc::verbs
