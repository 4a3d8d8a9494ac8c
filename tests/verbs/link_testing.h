// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_VERBS_LINK_TESTING_H_
#define TESTS_VERBS_LINK_TESTING_H_

// A sender and a receiver of grpc+verbs in one process, with calls between them that carry bytes.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/conformance/subjects.h"
#include "tests/conformance/testing.h"
#include "tests/units/transfer_testing.h"
#include "third_party/ar_grpc/verbs/introduction.h"
#include "third_party/ar_grpc/verbs/link.h"
#include "third_party/ar_grpc/verbs/receive.h"
#include "third_party/ar_grpc/verbs/sender.h"

namespace ar_grpc::verbs::testing {

using fabric::testing::Check;
using fabric::testing::kTimeoutMs;
using fabric::testing::Pattern;
using fabric::testing::Subject;
using fabric::testing::Value;
using protocol::testing::Pool;
using Bytes = std::vector<uint8_t>;

inline std::shared_ptr<Bytes> Made(uint64_t size, uint64_t seed) {
  auto bytes = std::make_shared<Bytes>(size);
  for (uint64_t i = 0; i < size; ++i) {
    (*bytes)[i] = Pattern(i, seed);
  }
  return bytes;
}

// A value that is set once; later ones do not count.
template <typename T>
class Awaited {
 public:
  std::function<void(T)> Setter() const {
    return [shared = shared_](T value) {
      if (!shared->set.exchange(true)) shared->promise.set_value(std::move(value));
    };
  }
  bool ReadyIn(int ms) {
    return future_.wait_for(std::chrono::milliseconds(ms)) == std::future_status::ready;
  }
  T Get(int line = __builtin_LINE()) {
    Check(ReadyIn(3 * kTimeoutMs), "nothing came", line);
    return future_.get();
  }

 private:
  struct Shared {
    std::atomic<bool> set{false};
    std::promise<T> promise;
  };
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::future<T> future_ = shared_->promise.get_future();
};

// A sender, and the calls to it, which other threads bring; each message goes by its bytes.
class Server {
 public:
  explicit Server(fabric::Context* context) : sender_(std::make_unique<Sender>(context)) {}

  Sender& sender() { return *sender_; }
  void Stop() { sender_.reset(); }
  int fetches() const { return fetches_; }
  int drops() const { return drops_; }

  std::function<void(const Introduce&, std::function<void(StatusOr<Introduced>)>)> IntroduceCall() {
    return [this](const Introduce& introduce, std::function<void(StatusOr<Introduced>)> answered) {
      const std::string bytes = Encode(introduce);
      pool_.Run([this, bytes, answered] {
        sender_->Introduce(Value(DecodeIntroduce(bytes)), [answered](StatusOr<Introduced> one) {
          if (!one.ok()) return answered(one.status());
          answered(DecodeIntroduced(Encode(*one)));
        });
      });
    };
  }
  Receive::FetchCall Fetch() {
    return [this](const verbs::Fetch& fetch, std::function<void(Status)> answered) {
      ++fetches_;
      pool_.Run([this, bytes = Encode(fetch), answered] {
        sender_->Serve(Value(DecodeFetch(bytes)), answered);
      });
    };
  }
  Receive::DropCall Drop() {
    return [this](const verbs::Drop& drop, std::function<void(Status)> answered) {
      ++drops_;
      pool_.Run([this, bytes = Encode(drop), answered] {
        if (drops_to_lose_-- > 0) {
          return answered(Status(StatusCode::kUnavailable, "the drop was lost"));
        }
        answered(sender_->Drop(Value(DecodeDrop(bytes))));
      });
    };
  }
  // The next ones do not arrive.
  void LoseDrops(int count) { drops_to_lose_ = count; }
  // Sends `bytes` to who asks; `failed` gets an answer that is an error.
  void Answer(const Ask& ask, std::shared_ptr<Bytes> bytes, const std::shared_ptr<Receive>& receive,
              std::function<void(Status)> failed) {
    pool_.Run([this, asked = Encode(ask), bytes, receive, failed] {
      Sender::Source source{bytes->data(), bytes->size(), bytes};
      sender_->Answer(Value(DecodeAsk(asked)), std::move(source),
                      [receive, failed](StatusOr<std::variant<Written, Held>> answer) {
                        if (!answer.ok()) {
                          receive->OnOther(answer.status());
                          return failed(answer.status());
                        }
                        if (const auto* const written = std::get_if<Written>(&*answer)) {
                          return receive->OnWritten(Value(DecodeWritten(Encode(*written))));
                        }
                        receive->OnHeld(Value(DecodeHeld(Encode(std::get<Held>(*answer)))));
                      });
    });
  }

 private:
  std::atomic<int> fetches_{0};
  std::atomic<int> drops_{0};
  std::atomic<int> drops_to_lose_{0};
  std::unique_ptr<Sender> sender_;
  Pool pool_{3};  // the first to end
};

inline NamedLink Linked(
    const Subject& subject, Server& server, std::function<void()> ended = [] {}) {
  Awaited<StatusOr<NamedLink>> made;
  MakeLink(subject.context, server.IntroduceCall(), std::move(ended), made.Setter());
  return Value(made.Get());
}

// One transfer in its parts.
class Transfer {
 public:
  Transfer(const NamedLink& link, Server& server)
      : server_(server),
        receive_(std::make_shared<Receive>(link, server.Fetch(), server.Drop(), ended_.Setter())) {}

  Ask Begin(uint64_t room) { return receive_->Begin(room); }
  void Answer(const Ask& ask, const std::shared_ptr<Bytes>& bytes) {
    server_.Answer(ask, bytes, receive_,
                   [set = ended_.Setter()](const Status& status) { set(status); });
  }
  Receive& receive() { return *receive_; }
  StatusOr<Receive::Arrived> Get(int line = __builtin_LINE()) { return ended_.Get(line); }
  bool EndsIn(int ms) { return ended_.ReadyIn(ms); }

 private:
  Server& server_;
  Awaited<StatusOr<Receive::Arrived>> ended_;
  const std::shared_ptr<Receive> receive_;
};

inline void CheckBytes(const StatusOr<Receive::Arrived>& arrived, const Bytes& bytes,
                       int line = __builtin_LINE()) {
  Check(arrived.ok(), arrived.status().message(), line);
  Check(arrived->size == bytes.size(), "another size", line);
  Check(std::equal(bytes.begin(), bytes.end(), arrived->block->data()), "wrong bytes", line);
}

// Again while a flaky fabric fails, which a step of TensorFlow's would not be; a link that has
// ended so is replaced.
inline void Brings(const Subject& subject, NamedLink& link, Server& server, uint64_t room,
                   const std::shared_ptr<Bytes>& bytes) {
  while (true) {
    Transfer transfer(link, server);
    transfer.Answer(transfer.Begin(room), bytes);
    const StatusOr<Receive::Arrived> arrived = transfer.Get();
    if (arrived.ok() || !subject.flaky) return CheckBytes(arrived, *bytes);
    if (!link.link->status().ok()) link = Linked(subject, server);
  }
}

}  // namespace ar_grpc::verbs::testing

#endif  // TESTS_VERBS_LINK_TESTING_H_
