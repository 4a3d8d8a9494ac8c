// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/handshake_attachment.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace ar_grpc {

HandshakeAttachment::HandshakeAttachment(protocol::End end,
                                         std::function<std::function<void()>()> prepare)
    : end_(end), mailbox_(std::make_shared<Mailbox>(std::move(prepare))) {}

Status HandshakeAttachment::Begin(fabric::Context* context, uint32_t attempt) {
  GiveUp();
  if (context == nullptr) return Status(StatusCode::kNotFound, "this end does not have it");
  attempt_ = attempt;
  live_ = true;
  fabric::AttachEvents events = Mailbox::Events(mailbox_, ++begun_);
  StatusOr<std::unique_ptr<fabric::Attachment>> attachment =
      end_ == protocol::End::kClient ? context->Connect(std::move(events))
                                     : context->Accept(std::move(events));
  if (!attachment.ok()) {
    live_ = false;
    return attachment.status();
  }
  attachment_ = std::move(*attachment);
  return OkStatus();
}

void HandshakeAttachment::TakeFrame(uint32_t attempt, const std::string& bytes) {
  if (attachment_ != nullptr && attempt == attempt_) attachment_->TakeFrame(bytes);
}

void HandshakeAttachment::GiveUp() {
  live_ = false;
  attachment_.reset();
  DropConnection();
}

void HandshakeAttachment::DropConnection() {
  connection_.reset();
  if (wake_ >= 0) close(std::exchange(wake_, -1));
}

void HandshakeAttachment::Close() {
  GiveUp();
  mailbox_->Close();
}

std::vector<HandshakeAttachment::News> HandshakeAttachment::Take() {
  std::vector<News> all;
  for (Mailbox::Letter& letter : mailbox_->Take()) {
    if (!live_ || letter.number != begun_) continue;
    News news;
    news.attempt = attempt_;
    news.ended = letter.ended;
    news.frame = std::move(letter.frame);
    if (letter.ended) {
      news.status =
          letter.connection.ok() ? Keep(std::move(*letter.connection)) : letter.connection.status();
    }
    all.push_back(std::move(news));
  }
  return all;
}

// Makes sure that the endpoint lacks nothing before the peer is told so.
Status HandshakeAttachment::Keep(std::unique_ptr<fabric::Connection> connection) {
  DropConnection();
  if (connection->capabilities().stream) {
    wake_ = fcntl(connection->wake_fd(), F_DUPFD_CLOEXEC, 0);
    if (wake_ < 0) {
      return Status(StatusCode::kResourceExhausted,
                    "no descriptor is free for the AR endpoint: raise the limit (ulimit -n)");
    }
  }
  connection_ = std::move(connection);
  return OkStatus();
}

}  // namespace ar_grpc
