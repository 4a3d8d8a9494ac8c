// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Transfers of grpc+verbs between two hosts, while something is done to their link or to a process:
//   writes_program sender PORT CASE BYTES
//   writes_program receiver HOST PORT CASE BYTES
// A tensor has BYTES. The calls go over TCP. Prints lines "name value".

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "tests/verbs/two_hosts.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/verbs/introduction.h"
#include "third_party/ar_grpc/verbs/link.h"
#include "third_party/ar_grpc/verbs/receive.h"
#include "third_party/ar_grpc/verbs/sender.h"

namespace ar_grpc::verbs {
namespace {

using fabric::verbs::testing::ByteAt;
using fabric::verbs::testing::Check;
using fabric::verbs::testing::CheckCode;
using fabric::verbs::testing::Counters;
using fabric::verbs::testing::Impair;
using fabric::verbs::testing::Say;
using fabric::verbs::testing::SayWhatWasSentAgain;
using fabric::verbs::testing::Seconds;
using fabric::verbs::testing::Socket;
using fabric::verbs::testing::Value;

uint64_t tensor_bytes = 0;
// Longer than any link lives whose peer is silent.
constexpr std::chrono::seconds kMost(90);
constexpr int kAtOnce = 6;
// Of the case "whole", between the first one and the last.
constexpr int kRounds = 24;
constexpr uint8_t kFill = 0xee;
// Of the sender, once it writes: the first of kAtOnce is then on its way.
constexpr int kFaultMs = 60;

std::chrono::steady_clock::time_point Now() { return std::chrono::steady_clock::now(); }

void Await(const char* what, const std::function<bool()>& held) {
  const auto begin = Now();
  while (!held()) {
    Check(Now() - begin < kMost, what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// --- calls: a kind, or a status code, and a number before each message ---

std::string Framed(char head, uint64_t number, const std::string& body) {
  return head + std::string(reinterpret_cast<const char*>(&number), sizeof(number)) + body;
}

uint64_t NumberIn(const std::string& bytes, size_t at) {
  uint64_t number = 0;
  Check(bytes.size() >= at + sizeof(number), "a message that is cut short");
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

constexpr size_t kHead = 1 + sizeof(uint64_t);

// The receiver's end. Answers come in a thread of its own.
class Calls {
 public:
  using Answered = std::function<void(StatusOr<std::string>)>;

  explicit Calls(Socket socket) : socket_(std::move(socket)), reader_([this] { Read(); }) {}
  ~Calls() {
    shutdown(socket_.fd(), SHUT_RDWR);
    reader_.join();
  }

  void Call(char kind, const std::string& body, Answered answered) {
    std::lock_guard<std::mutex> lock(mu_);
    if (over_) return answered(Gone());
    waiting_[++last_] = std::move(answered);
    // Where it has ended the reader says so.
    static_cast<void>(socket_.SendOrEnd(Framed(kind, last_, body)));
  }
  template <typename Message>
  void Tell(char kind, const Message& message, const std::function<void(Status)>& answered) {
    Call(kind, Encode(message), [answered](const auto& answer) { answered(answer.status()); });
  }

 private:
  static Status Gone() { return Status(StatusCode::kUnavailable, "the calls' connection is gone"); }

  void Read() {
    while (const auto frame = socket_.ReceiveOrEnd()) {
      const auto code = static_cast<StatusCode>(frame->at(0));
      const std::string body = frame->substr(kHead);
      Answered answered;
      {
        std::lock_guard<std::mutex> lock(mu_);
        answered = std::move(waiting_.at(NumberIn(*frame, 1)));
        waiting_.erase(NumberIn(*frame, 1));
      }
      if (code == StatusCode::kOk) {
        answered(body);
      } else {
        answered(Status(code, body));
      }
    }
    std::map<uint64_t, Answered> waiting;
    {
      std::lock_guard<std::mutex> lock(mu_);
      over_ = true;
      waiting.swap(waiting_);
    }
    for (const auto& [number, answered] : waiting) answered(Gone());
  }

  Socket socket_;
  std::mutex mu_;
  bool over_ = false;
  uint64_t last_ = 0;
  std::map<uint64_t, Answered> waiting_;
  std::thread reader_;
};

// --- the sender ---

// For how long the case cuts the sender's link; 0: not at all.
int CutSeconds(const std::string& name) { return name == "cut-4" ? 4 : name == "cut-8" ? 8 : 0; }

// Cuts this host's link once it has begun to write.
void Cut(int seconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(kFaultMs));
  Impair("loss 100%");
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  Impair("loss 0%");
}

class Service {
 public:
  Service(Socket socket, std::string name) : socket_(std::move(socket)), name_(std::move(name)) {}

  void Run() {
    while (const auto frame = socket_.ReceiveOrEnd()) {
      const uint64_t number = NumberIn(*frame, 1);
      const std::string body = frame->substr(kHead);
      switch (frame->at(0)) {
        case 'I':
          sender_.Introduce(Value(DecodeIntroduce(body)), [this, number](const auto& introduced) {
            Reply(number, introduced.status(), introduced.ok() ? Encode(*introduced) : "");
          });
          break;
        case 'A':
          Answer(number, body);
          break;
        case 'F':
          sender_.Serve(Value(DecodeFetch(body)),
                        [this, number](const Status& status) { Reply(number, status, ""); });
          break;
        case 'D':
          Reply(number, sender_.Drop(Value(DecodeDrop(body))), "");
          break;
        default:
          Check(false, "a call of no kind");
      }
    }
    if (cut_.joinable()) cut_.join();
    SayWhatWasSentAgain(before_);
    // The receiver has gone, and tells nobody over RDMA.
    const auto begin = Now();
    Await("sources and links go", [&] { return sources_ == 0 && AllCounts().links == 0; });
    Say("gone_seconds", Seconds(begin));
    Say("held", sender_.held());
    Say("written", AllCounts().written.load());
  }

 private:
  void Answer(uint64_t number, const std::string& body) {
    const uint64_t seed = NumberIn(body, 0);
    ++sources_;
    const std::shared_ptr<std::vector<uint8_t>> bytes(new std::vector<uint8_t>(tensor_bytes),
                                                      [this](std::vector<uint8_t>* gone) {
                                                        delete gone;
                                                        --sources_;
                                                      });
    for (uint64_t i = 0; i < tensor_bytes; ++i) (*bytes)[i] = ByteAt(seed + i);
    // The first ones grow the receiver's memory.
    if (const int seconds = CutSeconds(name_); ++asked_ == kAtOnce + 1 && seconds > 0) {
      // However fast the hosts are, the cut finds these writes under way.
      Impair("delay 100ms");
      cut_ = std::thread(Cut, seconds);
    }
    sender_.Answer(Value(DecodeAsk(body.substr(sizeof(seed)))),
                   {bytes->data(), tensor_bytes, bytes}, [this, number](const auto& answer) {
                     if (!answer.ok()) return Reply(number, answer.status(), "");
                     const auto* const written = std::get_if<Written>(&*answer);
                     Reply(number, Status(),
                           written != nullptr ? 'W' + Encode(*written)
                                              : 'H' + Encode(std::get<Held>(*answer)));
                   });
    if (name_ == "sender-dies" && asked_ == kAtOnce + 2) _exit(0);  // while it writes
  }

  void Reply(uint64_t number, const Status& status, const std::string& body) {
    std::lock_guard<std::mutex> lock(mu_);
    static_cast<void>(socket_.SendOrEnd(
        Framed(static_cast<char>(status.code()), number, status.ok() ? body : status.message())));
  }

  Socket socket_;
  const std::string name_;
  std::mutex mu_;  // one reply at a time
  std::atomic<int> sources_{0};
  int asked_ = 0;
  std::thread cut_;
  const std::map<std::string, uint64_t> before_ = Counters();
  Sender sender_{&fabric::verbs::Get()};
};

// --- the receiver ---

NamedLink Linked(Calls& calls) {
  std::promise<StatusOr<NamedLink>> made;
  MakeLink(
      &fabric::verbs::Get(),
      [&calls](const Introduce& introduce, std::function<void(StatusOr<Introduced>)> answered) {
        calls.Call('I', Encode(introduce), [answered](const StatusOr<std::string>& answer) {
          if (!answer.ok()) return answered(answer.status());
          answered(DecodeIntroduced(*answer));
        });
      },
      [] {}, [&made](StatusOr<NamedLink> link) { made.set_value(std::move(link)); });
  return Value(made.get_future().get());
}

class Transfer {
 public:
  Transfer(Calls& calls, const NamedLink& link, uint64_t seed, uint64_t room)
      : seed_(seed), state_(std::make_shared<State>()) {
    receive_ = std::make_shared<Receive>(
        link,
        [&calls](const Fetch& fetch, const auto& answered) { calls.Tell('F', fetch, answered); },
        [&calls](const Drop& drop, const auto& answered) { calls.Tell('D', drop, answered); },
        [state = state_](StatusOr<Receive::Arrived> arrived) { state->Set(std::move(arrived)); });
    const Ask ask = receive_->Begin(room);
    const std::string body(reinterpret_cast<const char*>(&seed), sizeof(seed));
    calls.Call('A', body + Encode(ask),
               [receive = receive_, state = state_](const StatusOr<std::string>& answer) {
                 if (!answer.ok()) {
                   receive->OnOther(answer.status());
                   return state->Set(answer.status());
                 }
                 const std::string rest = answer->substr(1);
                 if (answer->at(0) == 'W') return receive->OnWritten(Value(DecodeWritten(rest)));
                 receive->OnHeld(Value(DecodeHeld(rest)));
               });
  }

  void Cancel() { receive_->Cancel(); }
  bool ended() const { return state_->set; }
  // Compares the bytes where they have come.
  Status Get() {
    Await("a transfer ends", [this] { return ended(); });
    const StatusOr<Receive::Arrived>& arrived = *state_->arrived;
    if (!arrived.ok()) return arrived.status();
    Check(arrived->size == tensor_bytes, "another size");
    for (uint64_t i = 0; i < tensor_bytes; ++i) {
      Check(arrived->block->data()[i] == ByteAt(seed_ + i), "a wrong byte");
    }
    return Status();
  }

 private:
  struct State {
    // What comes later does not count.
    void Set(StatusOr<Receive::Arrived> value) {
      if (taken.exchange(true)) return;
      arrived = std::move(value);
      set = true;
    }
    std::atomic<bool> taken{false};
    std::atomic<bool> set{false};
    std::optional<StatusOr<Receive::Arrived>> arrived;  // once set
  };

  const uint64_t seed_;
  const std::shared_ptr<State> state_;
  std::shared_ptr<Receive> receive_;
};

std::vector<Transfer> Started(Calls& calls, const NamedLink& link, uint64_t room) {
  static uint64_t seed = 0;
  std::vector<Transfer> transfers;
  for (int i = 0; i < kAtOnce; ++i) transfers.emplace_back(calls, link, ++seed, room);
  return transfers;
}

void BringAll(Calls& calls, const NamedLink& link, uint64_t room) {
  for (Transfer& transfer : Started(calls, link, room)) CheckCode(transfer.Get(), StatusCode::kOk);
}

// Memory that the peer was never told of, or has said that it is through with.
class Others {
 public:
  explicit Others(const NamedLink& link) {
    for (int i = 0; i < kAtOnce; ++i) {
      blocks_.push_back(Value(link.link->landing()->Take(tensor_bytes)));
      std::memset(const_cast<uint8_t*>(blocks_.back()->data()), kFill, tensor_bytes);
    }
  }
  int64_t Spoiled() const {
    int64_t spoiled = 0;
    for (const auto& block : blocks_) {
      spoiled += std::count_if(block->data(), block->data() + tensor_bytes,
                               [](uint8_t byte) { return byte != kFill; });
    }
    return spoiled;
  }

 private:
  std::vector<std::shared_ptr<LandingPool::Block>> blocks_;
};

// Gives all up while they are written, and has other memory at once.
void CancelAll(Calls& calls, const NamedLink& link) {
  std::vector<Transfer> transfers = Started(calls, link, tensor_bytes);
  std::this_thread::sleep_for(std::chrono::milliseconds(10 * kFaultMs));
  const auto begin = Now();
  for (Transfer& transfer : transfers) transfer.Cancel();
  int cancelled = 0;
  for (Transfer& transfer : transfers) {
    const Status status = transfer.Get();
    if (status.ok()) continue;
    CheckCode(status, StatusCode::kCancelled);
    ++cancelled;
  }
  Say("cancel_seconds", Seconds(begin));
  Say("cancelled", cancelled);
  Say("kept", AllCounts().kept_bytes.load());
  transfers.clear();
  const Others others(link);
  Await("what is kept comes back", [] { return AllCounts().kept_bytes == 0; });
  Say("kept_seconds", Seconds(begin));
  Say("status", link.link->status().message() + ".");
  // The peer may have to hear of it first.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  Say("spoiled", others.Spoiled());
}

void Receiver(Calls& calls, const std::string& name) {
  NamedLink link = Linked(calls);
  BringAll(calls, link, 0);
  const auto before = Counters();
  if (name == "whole") {
    for (int round = 0; round < kRounds; ++round) BringAll(calls, link, round % 2 * tensor_bytes);
  } else if (name == "sender-dies" || name == "receiver-dies") {
    std::vector<Transfer> transfers = Started(calls, link, tensor_bytes);
    if (name == "receiver-dies") {
      std::this_thread::sleep_for(std::chrono::milliseconds(kFaultMs));
      _exit(0);
    }
    int failed = 0;
    for (Transfer& transfer : transfers) {
      const Status status = transfer.Get();
      if (status.ok()) continue;
      CheckCode(status, StatusCode::kUnavailable);
      ++failed;
    }
    Say("failed", failed);
    Await("the link ends", [] { return AllCounts().links == 0; });
    Say("kept", AllCounts().kept_bytes.load());
    return;
  } else {
    CancelAll(calls, link);
    if (!link.link->status().ok()) link = Linked(calls);
  }
  BringAll(calls, link, tensor_bytes);
  SayWhatWasSentAgain(before);
  Say("received", AllCounts().received.load());
  link.link->End(Status(StatusCode::kUnavailable, "over"));
  Await("the link ends", [] { return AllCounts().links == 0; });
  Say("next", "ok");
}

}  // namespace
}  // namespace ar_grpc::verbs

int main(int argc, char** argv) {
  using namespace ar_grpc::verbs;                   // NOLINT: a test's main
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT
  signal(SIGPIPE, SIG_IGN);
  const std::string role = argc > 1 ? argv[1] : "";
  if (argc > 4) tensor_bytes = std::strtoull(argv[argc - 1], nullptr, 10);
  if (role == "sender" && argc == 5) {
    Service(Accepted(argv[2]), argv[3]).Run();
    return 0;
  }
  if (role == "receiver" && argc == 6) {
    Calls calls(Connected(argv[2], argv[3]));
    Receiver(calls, argv[4]);
    return 0;
  }
  std::fprintf(stderr, "writes_program sender PORT CASE BYTES | receiver HOST PORT CASE BYTES\n");
  return 2;
}
