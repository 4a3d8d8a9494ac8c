// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Transfers of grpc+verbs without gRPC and TensorFlow: introductions, writes into offered memory,
// what is held where there is too little of it, cancels and ends. Over loopback, over a hostile
// fabric, and in a virtual RDMA host over verbs; a name runs one of them.

#include "third_party/ar_grpc/verbs/link.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "tests/conformance/forwarding.h"
#include "tests/conformance/subjects.h"
#include "tests/conformance/testing.h"
#include "tests/verbs/link_testing.h"
#include "third_party/ar_grpc/verbs/acceptor.h"
#include "third_party/ar_grpc/verbs/introduction.h"
#include "third_party/ar_grpc/verbs/receive.h"
#include "third_party/ar_grpc/verbs/sender.h"

namespace ar_grpc::verbs {
namespace {

using fabric::testing::Check;
using fabric::testing::CheckCode;
using fabric::testing::Eventually;
using fabric::testing::kSlowdown;
using fabric::testing::Subject;
using fabric::testing::Value;
using testing::Awaited;
using testing::Brings;
using testing::CheckBytes;
using testing::Linked;
using testing::Made;
using testing::Server;
using testing::Transfer;

constexpr uint64_t kMiB = uint64_t{1} << 20;

uint64_t Kept() { return AllCounts().kept_bytes; }

// By the size that is expected: the first time nothing is, then what came before.
void Sizes(const Subject& subject) {
  Server server(subject.context);
  NamedLink link = Linked(subject, server);
  const uint64_t received = AllCounts().received;
  uint64_t sum = 0;
  for (const uint64_t size : {uint64_t{1}, uint64_t{255}, uint64_t{4096}, kMiB, 5 * kMiB + 3}) {
    const auto bytes = Made(size, size);
    const int before = server.fetches();
    Brings(subject, link, server, 0, bytes);
    Check(server.fetches() > before, "it was not fetched, and nobody knew the size");
    const int then = server.fetches();
    Brings(subject, link, server, size, bytes);
    // More room than it takes, and less.
    Brings(subject, link, server, size + 1000, bytes);
    if (!subject.flaky) Check(server.fetches() == then, "it was fetched, and there was room");
    if (size > 1) Brings(subject, link, server, size - 1, bytes);
    if (size > 1) Check(server.fetches() > then, "it was not fetched, and there was no room");
    sum += (size > 1 ? 4 : 3) * size;
  }
  Check(AllCounts().received - received >= sum, "not counted");
  Check(server.sender().held() == 0, "something is still held");
  Eventually("blocks of refused transfers", [] { return Kept() == 0; });
}

// Many at a time, of many sizes; each has its own bytes.
void Crowd(const Subject& subject) {
  Server server(subject.context);
  const int rounds = std::max(5, 200 / subject.fewer_rounds / kSlowdown);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      NamedLink link = Linked(subject, server);
      for (int round = 0; round < rounds; ++round) {
        const uint64_t size = 1 + (thread * 7919 + round * 104729) % 300000;
        Brings(subject, link, server, round % 3 == 0 ? 0 : size + round % 5, Made(size, round));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Check(server.sender().held() == 0, "something is still held");
}

// What was offered goes another way: the block is the receiver's again when the peer has said so.
void Refused(const Subject& subject) {
  Server server(subject.context);
  NamedLink link = Linked(subject, server);
  Brings(subject, link, server, 0, Made(1000, 1));  // now there is room
  Transfer transfer(link, server);
  const Ask ask = transfer.Begin(1000);
  Check(ask.destination.has_value() && ask.destination->size == 1000, "nothing was offered");
  transfer.receive().OnOther(Status());
  Check(Kept() == 1000, "the block was given back before the peer was heard");
  server.sender().Refuse(ask);
  Eventually("the block comes back", [] { return Kept() == 0; });
}

// A cancel ends the receiver's wait at once, but the memory waits for the sender, whose write may
// come late: nobody else has it meanwhile.
void Cancelled(const Subject& subject) {
  Server server(subject.context);
  NamedLink link = Linked(subject, server);
  Brings(subject, link, server, 0, Made(1000, 1));
  Transfer transfer(link, server);
  const Ask ask = transfer.Begin(3000);
  Check(ask.destination.has_value(), "nothing was offered");
  transfer.receive().Cancel();
  CheckCode(transfer.Get().status(), StatusCode::kCancelled);
  Check(Kept() == 3000, "the block was given back");
  const auto other = link.link->landing()->TakeRegistered(3000);
  Check(other != nullptr && other->offset() != ask.destination->offset, "the block was reused");
  transfer.Answer(ask, Made(3000, 2));
  Eventually("the block comes back", [] { return Kept() == 0; });
  // Of what is held it says that it does not want it, and registers nothing.
  Transfer unknown(link, server);
  const Ask asks = unknown.Begin(0);
  unknown.receive().Cancel();
  const uint64_t registered = link.link->landing()->registered_bytes();
  unknown.Answer(asks, Made(40 * kMiB, 3));
  Eventually("it is dropped", [&] { return server.drops() == 1 && server.sender().held() == 0; });
  Check(link.link->landing()->registered_bytes() == registered, "memory was registered in vain");
}

// What a peer sees of a link, by hand: it takes the link's signs of life, which come once a beat,
// and answers them, or is silent. false: the link has ended before so many.
bool SeesBeats(fabric::Connection& peer, const Link& link, int beats, bool silent) {
  for (int beat = 0; beat < beats; ++beat) {
    fabric::Message message;
    // What a link that has ended leaves to its peer is an error.
    Eventually("a sign of life, or the end", [&] {
      const StatusOr<bool> taken = peer.Take(&message);
      return !link.status().ok() || Value(taken);
    });
    if (!link.status().ok()) return false;
    if (!silent) static_cast<void>(peer.Post(Encode(Note{})));
  }
  return true;
}

// Much that a peer has still to be through with leaves the link to its other transfers; one that
// never lets go of it loses the link in the end, and so does one that is silent, or has too much.
void MuchIsKept(const Subject& subject) {
  // Over RDMA a beat must outlast what a slow host does meanwhile.
  const int beat_ms = (subject.fewer_rounds > 1 ? 200 : 20) * kSlowdown;
  struct Peer {
    uint64_t size;
    bool silent;
    bool ends;
  };
  for (const Peer& one : {Peer{Link::kMostKept + 1, false, true}, Peer{kMiB, true, true},
                          Peer{Link::kMostKept, false, false}}) {
    fabric::testing::Pair pair = fabric::testing::Attach(*subject.context);
    const auto landing = std::make_shared<LandingPool>(subject.context);
    auto much = Value(landing->Take(one.size));  // which takes a while to be registered
    auto little = Value(landing->Take(100));
    const auto link = Value(Link::Start(std::move(pair.connector), landing, [] {}, beat_ms));
    const auto unwanted = [](const auto&) { Check(false, "nobody waits for it"); };
    const auto give_up = [&](uint64_t transfer, const std::shared_ptr<LandingPool::Block>& block) {
      static_cast<void>(Value(link->Expect(transfer, block, unwanted)));
      Check(link->Forget(transfer), "the peer has said nothing");
      Check(link->status().ok(), "the link ends with the transfer");
      Check(Kept() == one.size, "another size is kept");
    };
    give_up(1, much);
    Awaited<StatusOr<uint64_t>> noted;
    static_cast<void>(Value(link->Expect(2, std::move(little), noted.Setter())));
    Check(Value(pair.acceptor->Post(Encode(Note{2, true, 100}))), "a full ring");
    Check(Value(noted.Get()) == 100, "another transfer");
    Check(Value(pair.acceptor->Post(Encode(Note{1, false, 0}))), "a full ring");
    Eventually("the block comes back", [] { return Kept() == 0; });
    Check(link->status().ok(), "the link has ended");
    give_up(3, much);
    much.reset();
    Check(SeesBeats(*pair.acceptor, *link, Link::kMostSilent / 2, one.silent), "ends too soon");
    const bool lives = SeesBeats(*pair.acceptor, *link, 2 * Link::kMostSilent, one.silent);
    Check(lives == !one.ends, "the link's end");
    const std::string why = link->status().message();
    if (one.ends) Check(why.find(one.silent ? "nothing has come" : "too much memory") == 0, why);
    link->End(Status(StatusCode::kUnavailable, "over"));
    Eventually("the block comes back", [] { return Kept() == 0; });
  }
  if (subject.fewer_rounds > 1) return;  // so much memory cannot be pinned
  Server server(subject.context);
  const NamedLink link = Linked(subject, server);
  auto block = Value(link.link->landing()->Take(Link::kMostKeptAtOnce + 1));
  static_cast<void>(Value(link.link->Expect(1, std::move(block), [](const auto&) {})));
  Check(link.link->Forget(1), "the peer has said nothing");
  Check(link.link->status().message().find("too much memory") == 0, "the link has not ended");
  Eventually("the block comes back", [] { return Kept() == 0; });
}

// Calls that are made again, come late or in another order: what was offered is written to once.
void Repeated(const Subject& subject) {
  Server server(subject.context);
  NamedLink link = Linked(subject, server);
  Brings(subject, link, server, 0, Made(1000, 1));
  const auto bytes = Made(3000, 2);
  const Sender::Source source = {bytes->data(), bytes->size(), bytes};
  const auto answer = [&](const Ask& ask) {
    Awaited<StatusOr<std::variant<Written, Held>>> answered;
    server.sender().Answer(ask, source, answered.Setter());
    return answered.Get();
  };
  // The answer was lost: the same again, and nothing is written.
  Transfer transfer(link, server);
  const Ask ask = transfer.Begin(3000);
  transfer.Answer(ask, bytes);
  CheckBytes(transfer.Get(), *bytes);
  const uint64_t written = AllCounts().written;
  Check(std::get<Written>(Value(answer(ask))).size == 3000, "another answer");
  Check(AllCounts().written == written, "it was written twice");
  // The receiver has given up before its request has come, or while it was held.
  Transfer early(link, server);
  const Ask dropped = early.Begin(3000);
  early.receive().OnOther(Status(StatusCode::kCancelled, "the call was cancelled"));
  Eventually("the block comes back", [] { return Kept() == 0; });
  CheckCode(answer(dropped).status(), StatusCode::kAborted);
  Transfer late(link, server);
  const Ask held = late.Begin(0);
  Check(std::get<Held>(Value(answer(held))).size == 3000, "not held");
  Check(std::get<Held>(Value(answer(held))).size == 3000, "not held still");
  late.receive().OnOther(Status(StatusCode::kCancelled, "the call was cancelled"));
  Eventually("it is dropped", [&] { return server.sender().held() == 0; });
  CheckCode(answer(held).status(), StatusCode::kAborted);
  // A fetch of what is not held.
  Transfer unknown(link, server);
  const Ask asks = unknown.Begin(0);
  unknown.receive().OnHeld({100});
  CheckCode(unknown.Get().status(), StatusCode::kNotFound);
  Eventually("the block comes back", [] { return Kept() == 0; });
  // The drop behind it may come later than the block; until then the request is held.
  Eventually("it is dropped", [&] { return answer(asks).status().code() == StatusCode::kAborted; });
  Check(server.sender().held() == 0, "it is held");
  Check(link.link->status().ok(), "the link has ended");
}

// A request that is made again before the first one is answered: both have the answer, and the
// bytes are written once.
void TwiceAtOnce(const Subject& subject) {
  constexpr uint64_t kSize = 8 * kMiB;  // which takes a while
  constexpr int kAgain = 3;
  Server server(subject.context);
  NamedLink link = Linked(subject, server);
  const auto bytes = Made(kSize, 1);
  Brings(subject, link, server, 0, bytes);  // now there is room
  const Sender::Source source = {bytes->data(), bytes->size(), bytes};
  for (const bool link_ends : {false, true}) {
    Transfer transfer(link, server);
    const Ask ask = transfer.Begin(kSize);
    Check(ask.destination.has_value(), "nothing was offered");
    const uint64_t written = AllCounts().written;
    std::vector<Awaited<StatusOr<std::variant<Written, Held>>>> answers(1 + kAgain);
    for (const auto& answer : answers) server.sender().Answer(ask, source, answer.Setter());
    if (link_ends) link.link->End(Status(StatusCode::kUnavailable, "a test ends it"));
    for (auto& answer : answers) {
      const auto answered = answer.Get();
      if (answered.ok()) {
        Check(std::get<Written>(*answered).size == kSize, "another size");
      } else {
        Check(link_ends, answered.status().message());
        CheckCode(answered.status(), StatusCode::kUnavailable);
      }
    }
    if (link_ends) break;
    Check(AllCounts().written == written + kSize, "it was not written once");
    transfer.receive().OnWritten({kSize});
    CheckBytes(transfer.Get(), *bytes);
  }
}

// The same for a fetch: its answer, too, comes twice, and no note takes the room back meanwhile.
void FetchedTwice(const Subject& subject) {
  constexpr uint64_t kSize = 8 * kMiB;
  Server server(subject.context);
  NamedLink link = Linked(subject, server);
  const auto bytes = Made(kSize, 1);
  Transfer transfer(link, server);
  const Ask ask = transfer.Begin(0);
  Check(Value(server.sender().Hold(ask, {bytes->data(), kSize, bytes})).size == kSize, "not held");
  const std::shared_ptr<LandingPool::Block> block = Value(link.link->landing()->Take(kSize));
  const uint64_t name = link.link->NewTransfer();
  Awaited<StatusOr<uint64_t>> noted;
  const Destination destination = Value(link.link->Expect(name, block, noted.Setter()));
  const uint64_t written = AllCounts().written;
  std::vector<Awaited<Status>> answers(3);
  for (const auto& answer : answers) {
    server.sender().Serve({link.name, ask.transfer, name, destination}, answer.Setter());
  }
  for (auto& answer : answers) CheckCode(answer.Get(), StatusCode::kOk);
  Check(Value(noted.Get()) == kSize, "another size");
  Awaited<Status> late;
  server.sender().Serve({link.name, ask.transfer, name, destination}, late.Setter());
  CheckCode(late.Get(), StatusCode::kOk);
  Check(AllCounts().written == written + kSize, "it was not written once");
  Check(std::equal(bytes->begin(), bytes->end(), block->data()), "wrong bytes");
}

// A drop that does not arrive is made again, and ends the link at last: the sender would hold the
// tensor for as long as that lives.
void LostDrops(const Subject& subject) {
  for (const int lost : {1, 100}) {
    Server server(subject.context);
    NamedLink link = Linked(subject, server);
    Transfer unwanted(link, server);
    const Ask ask = unwanted.Begin(0);
    unwanted.receive().Cancel();
    server.LoseDrops(lost);
    unwanted.Answer(ask, Made(2000, 2));
    if (lost == 1) {
      Eventually("it is dropped", [&] { return server.drops() == 2; });
    } else {
      Eventually("the link ends", [&] { return !link.link->status().ok(); });
    }
    Eventually("what is held goes", [&] { return server.sender().held() == 0; });
    Check(link.link->status().ok() == (lost == 1), "the link's end");
  }
}

// A call that ends with Unavailable: the peer has gone, or its program says so of something else.
// The drop behind it tells these apart: of the second the link's other transfers know nothing.
void UnavailableCalls(const Subject& subject) {
  for (const bool gone : {false, true}) {
    Server server(subject.context);
    Server stranger(subject.context);
    NamedLink link = Linked(subject, server);
    Brings(subject, link, server, 0, Made(1000, 1));
    Transfer other(link, server);
    const Ask asked = other.Begin(1000);
    Transfer failed(link, server);
    static_cast<void>(failed.Begin(1000));
    if (gone) {
      server.LoseDrops(1);
      other.receive().OnWritten({1000});
    }
    failed.receive().OnOther(Status(StatusCode::kUnavailable, "a test says so"));
    if (gone) {
      Eventually("the link ends", [&] { return !link.link->status().ok(); });
      Check(server.drops() == 1, "it ends at once");
      CheckCode(other.Get().status(), StatusCode::kUnavailable);
      continue;
    }
    Eventually("it is dropped", [&] { return server.drops() == 1; });
    other.Answer(asked, Made(1000, 2));
    CheckCode(other.Get().status(), StatusCode::kOk);
    Check(link.link->status().ok(), "the link ended");
    // The process that answers there now is not the one that it leads to.
    Transfer again(link, stranger);
    static_cast<void>(again.Begin(1000));
    again.receive().OnOther(Status(StatusCode::kUnavailable, "a test says so"));
    Eventually("the link ends", [&] { return !link.link->status().ok(); });
    Check(stranger.drops() == 1, "it ends at once");
  }
}

// Either end ends the link: who waits hears of it, what is held goes, and the next link works.
void Ends(const Subject& subject) {
  for (const bool by_sender : {true, false}) {
    std::atomic<int> ended{0};
    {
      Server server(subject.context);
      NamedLink link = Linked(subject, server, [&ended] { ++ended; });
      Brings(subject, link, server, 0, Made(1000, 1));
      Transfer waits(link, server);
      Check(waits.Begin(1000).destination.has_value(), "nothing was offered");
      waits.receive().OnWritten({1000});
      Check(!waits.EndsIn(20), "it ended before its note");
      // One that is held, and whose receiver is slow.
      server.sender().Answer({link.name, 999, std::nullopt}, {nullptr, 5, Made(5, 1)},
                             [](const auto& answer) { Check(answer.ok(), "not held"); });
      Check(server.sender().held() == 1, "nothing is held");
      if (by_sender) {
        server.sender().EndLinks(Status(StatusCode::kUnavailable, "a test ends it"));
      } else {
        link.link->End(Status(StatusCode::kUnavailable, "a test ends it"));
      }
      CheckCode(waits.Get().status(), StatusCode::kUnavailable);
      Eventually("the link ends", [&] { return ended == 1; });
      Eventually("what is held goes", [&] { return server.sender().held() == 0; });
      Transfer late(link, server);
      const Ask ask = late.Begin(1000);
      Check(!ask.destination.has_value(), "memory is offered over a link that has ended");
      late.Answer(ask, Made(10, 1));
      CheckCode(late.Get().status(), StatusCode::kUnavailable);
      NamedLink next = Linked(subject, server);
      Brings(subject, next, server, 0, Made(2000, 2));
    }
    Eventually("blocks of a link that has ended", [] { return Kept() == 0; });
  }
}

// Its ends are made by hand, by what the test does with `events`.
class ByHand final : public fabric::testing::ForwardingContext {
 public:
  using ForwardingContext::ForwardingContext;
  StatusOr<std::unique_ptr<fabric::Attachment>> Connect(fabric::AttachEvents given) override {
    class Deaf final : public fabric::Attachment {
      void TakeFrame(const std::string& /*frame*/) override {}
    };
    events = std::move(given);
    return std::unique_ptr<fabric::Attachment>(std::make_unique<Deaf>());
  }
  fabric::AttachEvents events;
};

// The receiver's end is made while a call is under way, which may have left before the sender's
// was: the next call follows that one's answer at once.
void NewsDuringACall(const Subject& subject) {
  ByHand context(subject.context);
  std::vector<std::function<void(StatusOr<Introduced>)>> calls;
  Awaited<StatusOr<NamedLink>> made;
  MakeLink(
      &context,
      [&calls](const Introduce&, std::function<void(StatusOr<Introduced>)> answered) {
        calls.push_back(std::move(answered));
      },
      [] {}, made.Setter());
  Check(calls.size() == 1, "the peer was not asked first");
  context.events.done(std::unique_ptr<fabric::Connection>());
  Check(calls.size() == 1, "two calls are under way");
  std::exchange(calls[0], nullptr)(Introduced{});
  Check(calls.size() == 2, "the peer was not asked again at once");
  std::exchange(calls[1], nullptr)(Status(StatusCode::kCancelled, "enough"));
  CheckCode(made.Get().status(), StatusCode::kCancelled, "enough");
  context.events = {};
}

// Calls of an introduction fail, or never end, or somebody knocks a thousand times.
void Introductions(const Subject& subject) {
  Server server(subject.context);
  Awaited<StatusOr<NamedLink>> made;
  MakeLink(
      subject.context,
      [](const Introduce&, const std::function<void(StatusOr<Introduced>)>& answered) {
        answered(Status(StatusCode::kFailedPrecondition, "does not speak grpc+verbs"));
      },
      [] {}, made.Setter());
  CheckCode(made.Get().status(), StatusCode::kFailedPrecondition, "does not speak");
  // Frames that are none. The sender says so, and has no link of that name.
  const Introduce nonsense{NewToken(), "no frame of this fabric's"};
  Awaited<StatusOr<Introduced>> answer;
  server.sender().Introduce(nonsense, answer.Setter());
  const StatusOr<Introduced> answered = answer.Get();
  Check(!answered.ok() || !answered->made, "nonsense makes a link");
  Transfer transfer({nonsense.link, Linked(subject, server).link}, server);
  transfer.Answer({nonsense.link, 1, std::nullopt}, Made(10, 1));
  CheckCode(transfer.Get().status(), StatusCode::kUnavailable, "has ended");
  // More than there is room for; those who wait are answered at last.
  if (subject.fewer_rounds > 1) return;
  std::atomic<int> refused{0};
  std::atomic<size_t> all{0};
  for (size_t i = 0; i < Acceptor::kMostPending + 5; ++i) {
    server.sender().Introduce({NewToken(), ""}, [&](const StatusOr<Introduced>& one) {
      refused += one.status().code() == StatusCode::kResourceExhausted ? 1 : 0;
      ++all;
    });
  }
  Eventually("all are answered", [&] { return all == Acceptor::kMostPending + 5; });
  Check(refused >= 5 && refused < 20, "not the last ones were refused");
}

// A peer that does not keep to the rules ends the link, and spoils only what it sends itself.
void Forged(const Subject& subject) {
  for (const std::string forgery : {"too much", "no note", "a stream"}) {
    fabric::testing::Pair pair = fabric::testing::Attach(*subject.context);
    std::atomic<bool> gone{false};
    const auto landing = std::make_shared<LandingPool>(subject.context);
    const auto link = Value(Link::Start(std::move(pair.connector), landing, [&] { gone = true; }));
    Awaited<StatusOr<uint64_t>> noted;
    static_cast<void>(Value(link->Expect(7, Value(landing->Take(100)), noted.Setter())));
    if (forgery == "a stream") {
      Check(Value(fabric::testing::WriteText(*pair.acceptor, "hello")) == 5, "a full stream");
    } else {
      fabric::Message message = Encode(Note{7, true, 101});
      if (forgery == "no note") message.bytes.fill(0xff);
      Check(Value(pair.acceptor->Post(message)), "a full ring");
    }
    CheckCode(noted.Get().status(), StatusCode::kUnavailable);
    Eventually("the link ends", [&] { return gone.load(); });
  }
  // A note for what nobody expects is none of ours; the next one counts.
  fabric::testing::Pair pair = fabric::testing::Attach(*subject.context);
  const auto landing = std::make_shared<LandingPool>(subject.context);
  const auto link = Value(Link::Start(std::move(pair.connector), landing, [] {}));
  Awaited<StatusOr<uint64_t>> noted;
  static_cast<void>(Value(link->Expect(7, Value(landing->Take(100)), noted.Setter())));
  Check(Value(pair.acceptor->Post(Encode(Note{8, true, 1}))), "a full ring");
  Check(Value(pair.acceptor->Post(Encode(Note{7, true, 100}))), "a full ring");
  Check(Value(noted.Get()) == 100, "another size");
  link->End(Status(StatusCode::kUnavailable, "over"));
}

// More notes at once than the fabric has room for: they wait, and come in their order.
void ManyNotes(const Subject& subject) {
  fabric::testing::Pair pair = fabric::testing::Attach(*subject.context);
  const auto landing = std::make_shared<LandingPool>(subject.context);
  const auto receiver = Value(Link::Start(std::move(pair.connector), landing, [] {}));
  const auto sender = Value(Link::Start(std::move(pair.acceptor), nullptr, [] {}));
  constexpr uint64_t kMany = 3000;
  std::atomic<uint64_t> came{0};
  for (uint64_t i = 1; i <= kMany; ++i) {
    static_cast<void>(Value(receiver->Expect(i, Value(landing->Take(1)), [&](const auto& note) {
      CheckCode(note.status(), StatusCode::kAborted);
      ++came;
    })));
  }
  for (uint64_t i = 1; i <= kMany; ++i) sender->Refuse(i);
  Eventually("all notes", [&] { return came == kMany; });
  receiver->End(Status(StatusCode::kUnavailable, "over"));
  Eventually("the other end", [&] { return !sender->status().ok(); });
}

// Segments grow with what is asked for, are shared by blocks, and go back beyond what is kept.
void LandingPoolGrows(const Subject& subject) {
  const auto landing = std::make_shared<LandingPool>(subject.context);
  Check(landing->TakeRegistered(1) == nullptr, "room where there is none");
  auto small = Value(landing->Take(1));
  Check(landing->registered_bytes() == LandingPool::kFirstSegment, "the first segment's size");
  auto next = landing->TakeRegistered(100000);
  Check(next != nullptr && next->registration() == small->registration(), "another segment");
  Check(next->offset() >= 1 && next->offset() != small->offset(), "a block that is taken");
  auto large = Value(landing->Take(70 * kMiB));
  Check(landing->registered_bytes() == LandingPool::kFirstSegment + 70 * kMiB,
        "a large one's size");
  auto more = Value(landing->Take(70 * kMiB));
  large.reset();
  Check(landing->registered_bytes() == LandingPool::kFirstSegment + 140 * kMiB, "not kept");
  more.reset();
  small.reset();
  next.reset();
  Check(landing->registered_bytes() <= LandingPool::kMostFree, "too much is kept");
}

struct Case {
  const char* name;
  void (*run)(const Subject&);
  bool flaky = false;  // also where operations fail for no reason
};
constexpr Case kCases[] = {
    {"sizes", Sizes, true},
    {"crowd", Crowd, true},
    {"refused", Refused},
    {"cancelled", Cancelled},
    {"much is kept", MuchIsKept},
    {"repeated", Repeated},
    {"ends", Ends},
    {"introductions", Introductions},
    {"news during a call", NewsDuringACall},
    {"forged", Forged},
    {"many notes", ManyNotes},
    {"landing pool", LandingPoolGrows},
    {"twice at once", TwiceAtOnce},
    {"fetched twice", FetchedTwice},
    {"lost drops", LostDrops},
    {"unavailable calls", UnavailableCalls},
};

// Late, out of order and on other threads, but no operation fails.
Subject Late() {
  fabric::hostile::Options options;
  options.failing_percent = 0;
  static fabric::Context* const context = fabric::hostile::New(options).release();
  Subject subject;
  subject.name = "late";
  subject.context = subject.other = context;
  return subject;
}
const fabric::testing::AddedSubject added(Late);

}  // namespace
}  // namespace ar_grpc::verbs

int main(int argc, char** argv) {
  const std::string wanted = argc > 1 ? argv[1] : "";
  for (const auto& subject : ar_grpc::fabric::testing::Subjects()) {
    // Over shm nobody writes to a peer's memory.
    if (!subject.context->capabilities().put) continue;
    if (wanted.empty() ? !subject.by_default : wanted != subject.name) continue;
    for (const auto& one : ar_grpc::verbs::kCases) {
      if (subject.flaky && !one.flaky) continue;
      std::printf("%s: %s\n", subject.name.c_str(), one.name);
      std::fflush(stdout);
      one.run(subject);
    }
  }
  std::printf("ok link_test\n");
}
