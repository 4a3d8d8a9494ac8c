// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_MAILBOX_H_
#define THIRD_PARTY_AR_GRPC_GRPC_MAILBOX_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/fabric/fabric.h"

namespace ar_grpc {

// What attachments tell a handshake, from any thread (the reactor's above all, which must run
// nothing of gRPC's) and inline: it lies here until a thread of gRPC's takes it. Outlives the
// handshake if it must. Thread-safe.
class Mailbox {
 public:
  struct Letter {
    uint32_t number = 0;
    std::string frame;  // for the peer, unless `ended`
    bool ended = false;
    StatusOr<std::unique_ptr<fabric::Connection>> connection = Status();
  };

  // `prepare` runs under the mailbox's lock when a letter has come; what it returns runs after
  // that, at most once until Woken().
  explicit Mailbox(std::function<std::function<void()>()> prepare) : prepare_(std::move(prepare)) {}

  // For an attachment of this number: one of its own for each, since an event that was under way
  // when its attachment was destroyed comes later, and must not be taken for the next one's.
  static fabric::AttachEvents Events(const std::shared_ptr<Mailbox>& mailbox, uint32_t number) {
    fabric::AttachEvents events;
    events.send = [mailbox, number](std::string frame) {
      Letter letter;
      letter.number = number;
      letter.frame = std::move(frame);
      mailbox->Put(std::move(letter));
    };
    events.done = [mailbox, number](StatusOr<std::unique_ptr<fabric::Connection>> connection) {
      Letter letter;
      letter.number = number;
      letter.ended = true;
      letter.connection = std::move(connection);
      mailbox->Put(std::move(letter));
    };
    return events;
  }

  void Woken() {
    std::lock_guard<std::mutex> lock(mu_);
    waking_ = false;
  }

  std::vector<Letter> Take() {
    std::lock_guard<std::mutex> lock(mu_);
    return std::exchange(letters_, {});
  }

  // From now on letters are thrown away, and nothing is woken any more.
  void Close() {
    std::vector<Letter> letters;  // destroyed after the lock
    std::lock_guard<std::mutex> lock(mu_);
    prepare_ = nullptr;
    letters = std::exchange(letters_, {});
  }

 private:
  void Put(Letter letter) {
    std::function<void()> wake;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!prepare_) return;  // `letter` takes its connection along, after the lock
      letters_.push_back(std::move(letter));
      if (waking_) return;
      waking_ = true;
      wake = prepare_();
    }
    wake();
  }

  std::mutex mu_;
  // Guarded by mu_.
  std::function<std::function<void()>()> prepare_;
  std::vector<Letter> letters_;
  bool waking_ = false;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_MAILBOX_H_
