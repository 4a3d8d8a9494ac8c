// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// How connections come to be, and how attachments end without one.

#include <atomic>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/conformance/suite.h"

namespace ar_grpc::fabric::testing {
namespace {

void AContextReachesItself(const Subject& subject) {
  const std::string brochure = Value(subject.context->Brochure());
  Check(brochure.size() <= kLargestBrochure, "a brochure's size");
  CheckOk(subject.context->Reaches(brochure));
  CheckOk(subject.other->Reaches(brochure));
  for (size_t size = 0; size < brochure.size(); ++size) {
    CheckCode(subject.context->Reaches(brochure.substr(0, size)), StatusCode::kInvalidArgument);
  }
  CheckCode(subject.context->Reaches(brochure + "x"), StatusCode::kInvalidArgument);
  // Whatever it says then.
  for (size_t i = 0; i < brochure.size() * 8; ++i) {
    std::string flipped = brochure;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << i % 8));
    static_cast<void>(subject.context->Reaches(flipped).ok());
  }
}

void TwoConnectionsDoNotMix(const Subject& subject) {
  Pair one = Attach(subject);
  Pair two = Attach(subject);
  if (HasStream(subject)) {
    const uint64_t total = (uint64_t{8} << 20) / kSlowdown;
    std::vector<std::thread> threads;
    threads.emplace_back([&] { Exchange(*one.connector, total, 1, 2); });
    threads.emplace_back([&] { Exchange(*one.acceptor, total, 2, 1); });
    threads.emplace_back([&] { Exchange(*two.connector, total, 3, 4); });
    threads.emplace_back([&] { Exchange(*two.acceptor, total, 4, 3); });
    for (std::thread& thread : threads) thread.join();
  }
  one.connector->Close(nullptr);
  CheckCarries(subject, *two.connector, *two.acceptor);
}

void TwoContextsAttach(const Subject& subject) {
  const Shared here = Share(*subject.context);
  const Shared there = Share(*subject.other);
  Pair pair = Attach(*subject.context, *subject.other);
  const Key key = Value(pair.acceptor->Export(here.registration));
  const Key back = Value(pair.connector->Export(there.registration));
  uint8_t byte = 0;
  CheckOk(Get(subject, *pair.connector, key, 9, &byte, 1));
  Check(byte == Pattern(9, 7), "the bytes");
  CheckOk(Get(subject, *pair.acceptor, back, 10, &byte, 1));
  Check(byte == Pattern(10, 7), "the bytes");
  CheckCarries(subject, *pair.acceptor, *pair.connector);
}

void ManyAttachAtOnce(const Subject& subject) {
  std::vector<std::thread> threads;
  for (int id = 0; id < 4; ++id) {
    threads.emplace_back([&subject] {
      for (int i = 0; i < 20 / kSlowdown + 1; ++i) {
        Pair pair = Attach(subject);
        CheckCarries(subject, *pair.acceptor, *pair.connector);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void AttachmentsMayGoBeforeTheirConnections(const Subject& subject) {
  Pair pair;
  {
    Introduction introduction(*subject.context, *subject.context);
    introduction.Run();
    pair.connector = Value(introduction.Take(0));
    pair.acceptor = Value(introduction.Take(1));
  }
  CheckCarries(subject, *pair.connector, *pair.acceptor);
}

// Given up before any frame, after `frames` of them, by either end or by both.
void AttachmentsMayBeGivenUpAtEachStep(const Subject& subject) {
  for (int frames = 0; frames < 4; ++frames) {
    for (const int who : {0, 1, 2}) {
      Introduction introduction(*subject.context, *subject.context);
      int carried = 0;
      introduction.Run(10, [&](int, std::string frame) -> std::vector<std::string> {
        if (carried++ < frames) return {std::move(frame)};
        return {};
      });
      for (const int end : {0, 1}) {
        if (who == end || who == 2) introduction.attachments[end].reset();
      }
    }
  }
  // Amid the last step: the end may come before or after, but both ends stay whole.
  for (int round = 0; round < 200 / kSlowdown; ++round) {
    Introduction introduction(*subject.context, *subject.context);
    introduction.Run(0);
    for (int spin = round * 50; spin > 0; --spin) {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    introduction.attachments[round % 2].reset();
    introduction.Run(20);
  }
  Attach(subject);
}

// Frames that wait to be carried to one end.
class Mail {
 public:
  std::function<void(std::string)> sender() {
    return [state = state_](std::string frame) {
      std::lock_guard<std::mutex> lock(state->mu);
      state->frames.push_back(std::move(frame));
    };
  }
  void CarryTo(Attachment* end) {
    while (std::optional<std::string> frame = Next()) end->TakeFrame(*frame);
  }

 private:
  struct State {
    std::mutex mu;
    std::deque<std::string> frames;
  };

  std::optional<std::string> Next() {
    std::lock_guard<std::mutex> lock(state_->mu);
    if (state_->frames.empty()) return std::nullopt;
    std::string frame = std::move(state_->frames.front());
    state_->frames.pop_front();
    return frame;
  }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

void AnEventMayDestroyItsAttachment(const Subject& subject) {
  for (const bool good : {true, false}) {
    Mail to_client;
    Mail to_server;
    std::unique_ptr<Attachment> client;
    Ended ended;
    AttachEvents events;
    events.send = to_server.sender();
    events.done = [&, done = ended.done()](MaybeConnection made) {
      client.reset();
      done(made.status());
    };
    client = Value(subject.context->Connect(std::move(events)));
    Attachment* const raw = client.get();
    if (!good) {
      raw->TakeFrame("garbage");
      CheckCode(ended.Wait(), StatusCode::kInvalidArgument);
      continue;
    }
    AttachEvents server;
    server.send = to_client.sender();
    // A server that closes at once may be heard before the client's own end is made.
    const auto kept = std::make_shared<std::optional<MaybeConnection>>();
    server.done = [kept](MaybeConnection made) { *kept = std::move(made); };
    const auto acceptor = Value(subject.context->Accept(std::move(server)));
    // The last frame of all is for the client.
    Eventually("an end", [&] {
      to_server.CarryTo(acceptor.get());
      to_client.CarryTo(raw);
      return ended.Ready(1);
    });
    CheckOk(ended.Wait());
  }
}

// What a client makes of a frame from a server that forges its first.
Status Forged(const Subject& subject, const std::function<std::string(std::string)>& forge) {
  Introduction introduction(*subject.context, *subject.context);
  bool first = true;
  introduction.Run(0, [&](int to, std::string frame) -> std::vector<std::string> {
    if (to == 1 || !std::exchange(first, false)) return {std::move(frame)};
    return {forge(std::move(frame))};
  });
  // Before the server goes, which would refuse the client whatever it makes of the frame.
  if (subject.by_token) Eventually("the client's end", [&] { return introduction.Done(0); });
  introduction.attachments[1].reset();
  introduction.Run(300);
  return introduction.Done(0) ? introduction.Take(0).status()
                              : Status(StatusCode::kDeadlineExceeded, "no answer");
}

void MalformedFramesAreRefused(const Subject& subject) {
  Introduction introduction(*subject.context, *subject.context);
  Eventually("the server speaks first", [&] { return !introduction.Frames().empty(); });
  const std::string frame = introduction.Frames()[0].second;
  for (size_t size = 0; size < frame.size(); ++size) {
    const auto cut = [size](std::string whole) { return whole.substr(0, size); };
    CheckCode(Forged(subject, cut), StatusCode::kInvalidArgument);
  }
  const auto longer = [](std::string whole) { return whole + "x"; };
  CheckCode(Forged(subject, longer), StatusCode::kInvalidArgument);
  for (const size_t size : {size_t{1}, frame.size(), kLargestAttachFrame, size_t{100000}}) {
    const auto garbage = [size](const std::string&) { return std::string(size, '\xff'); };
    CheckCode(Forged(subject, garbage), StatusCode::kInvalidArgument);
  }
  // A flipped bit is refused in some way, or is one that does not matter; nothing hangs or breaks.
  for (size_t i = 0; i < frame.size() * 8; i += subject.by_token ? 1 : 29) {
    const auto flip = [i](std::string whole) {
      whole[i / 8] = static_cast<char>(whole[i / 8] ^ (1 << i % 8));
      return whole;
    };
    const Status status = Forged(subject, flip);
    if (!subject.by_token) continue;
    Check(!status.ok(), "every bit of a token's frame matters");
    Check(status.code() != StatusCode::kDeadlineExceeded, "the client's end");
  }
  Attach(subject);
}

void FramesThatNobodyWaitsForAreRefused(const Subject& subject) {
  {
    // To a server, which has spoken and waits for a connection.
    Introduction introduction(*subject.context, *subject.context);
    introduction.attachments[1]->TakeFrame("x");
    CheckCode(introduction.Take(1).status(), StatusCode::kInvalidArgument);
  }
  {
    // Twice to a client: the second comes too late or is refused.
    Introduction introduction(*subject.context, *subject.context);
    introduction.Run(
        300, [](int, std::string frame) -> std::vector<std::string> { return {frame, frame}; });
    const Status status = introduction.Take(0).status();
    if (!status.ok()) CheckCode(status, StatusCode::kInvalidArgument);
  }
  Attach(subject);
}

void ATokenAttachesOnce(const Subject& subject) {
  Introduction introduction(*subject.context, *subject.context);
  const std::string frame = introduction.Frames()[0].second;
  const auto connect = [&](const std::string& bytes) {
    Ended ended;
    AttachEvents events;
    events.done = [done = ended.done()](MaybeConnection made) { done(made.status()); };
    const auto client = Value(subject.context->Connect(std::move(events)));
    client->TakeFrame(bytes);
    return ended.Wait();
  };
  std::string other = frame;
  other.back() = static_cast<char>(other.back() ^ 1);  // of the token
  CheckCode(connect(other), StatusCode::kPermissionDenied, "unknown token");
  Check(!introduction.Done(1), "an impostor does not use up the token");
  CheckOk(connect(frame));
  Eventually("the acceptor has it", [&] { return introduction.Done(1); });
  CheckOk(introduction.Take(1).status());
  CheckCode(connect(frame), StatusCode::kPermissionDenied);
  // Nor does a token outlive its attachment.
  Introduction given_up(*subject.context, *subject.context);
  const std::string late = given_up.Frames()[0].second;
  given_up.attachments[1].reset();
  CheckCode(connect(late), StatusCode::kPermissionDenied);
}

// Who gives up hears nothing any more but what was under way.
void GivingUpEndsTheEvents(const Subject& subject) {
  for (int round = 0; round < 50 / kSlowdown + 1; ++round) {
    std::atomic<int> calls{0};
    AttachEvents events;
    events.send = [](std::string) {};
    events.done = [&calls](MaybeConnection) { ++calls; };
    { const auto server = Value(subject.context->Accept(std::move(events))); }
    Check(calls == 0, "no event without a peer");
  }
}

}  // namespace

std::vector<Case> AttachCases(const Subject& subject) {
  return CasesOf(
      subject,
      {
          {"a context reaches itself", AContextReachesItself},
          {"two connections do not mix", TwoConnectionsDoNotMix},
          {"two contexts attach", TwoContextsAttach},
          {"many attach at once", ManyAttachAtOnce},
          {"attachments may go before their connections", AttachmentsMayGoBeforeTheirConnections},
          {"attachments may be given up at each step", AttachmentsMayBeGivenUpAtEachStep},
          {"an event may destroy its attachment", AnEventMayDestroyItsAttachment},
          {"malformed frames are refused", MalformedFramesAreRefused},
          {"frames that nobody waits for are refused", FramesThatNobodyWaitsForAreRefused},
          {"a token attaches once", ATokenAttachesOnce, subject.by_token},
          {"giving up ends the events", GivingUpEndsTheEvents},
      });
}

}  // namespace ar_grpc::fabric::testing
