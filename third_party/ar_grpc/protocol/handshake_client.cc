// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include <algorithm>
#include <utility>

#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/token_frame.h"
#include "third_party/ar_grpc/protocol/handshake.h"
#include "third_party/ar_grpc/protocol/handshake_steps.h"

namespace ar_grpc::protocol {
namespace {

constexpr char kClosed[] = "it closed the connection at the hello";
constexpr char kMute[] = "it did not answer the hello";
// The first hello and two more.
constexpr int kMostHellos = 3;

}  // namespace

ClientHandshake::ClientHandshake(HandshakeOptions options, uint16_t version)
    : options_(std::move(options)),
      version_(std::min(std::max(version, kOldestVersion), kVersion)) {}

Steps ClientHandshake::Start(Instant now) {
  SayHello(now);
  return Take();
}

Steps ClientHandshake::Received(std::string_view bytes, Instant now) {
  if (ended() || state_ == State::kReconnecting) return {};
  // What was asked for so long ago is answered by then, or it is of no use: see Expired.
  if (now >= deadline_) return Expired(now);
  received_.Add(bytes);
  Parse(now);
  return Take();
}

Steps ClientHandshake::Closed(Instant now) {
  if (ended()) return {};
  if (state_ == State::kReconnecting) {
    Fail(StatusCode::kUnavailable, "cannot be connected to again: " + next_reason_);
  } else if (now >= deadline_ && state_ != State::kAttaching) {
    return Expired(now);
  } else if (version_ == 1 && state_ != State::kHello) {
    Fail(StatusCode::kUnavailable, "closed the connection in the AR-gRPC handshake");
  } else if (spoken_) {
    Lost("it closed the connection in the handshake");
  } else {
    Reconnect(Next::kPlain, kClosed);
  }
  return Take();
}

Steps ClientHandshake::Reconnected(Instant now) {
  if (state_ != State::kReconnecting) return {};
  if (next_ == Next::kHello) {
    SayHello(now);
  } else {
    EndWithoutFabric(Step::Kind::kStayOnPlainTcp, next_reason_, next_transient_);
  }
  return Take();
}

Steps ClientHandshake::FrameToSend(uint32_t attempt, std::string bytes, Instant now) {
  // After this end's verdict the server may have left TCP.
  if (state_ != State::kAttaching || attempt != attempt_ || version_ == 1) return {};
  if (now >= deadline_) return Expired(now);
  if (bytes.size() > fabric::kLargestAttachFrame) {
    Failed(Status(StatusCode::kInternal, fabric_ + " made a frame that is too long"));
    return Take();
  }
  steps_.push_back(SendStep(Encode(Attach{attempt, std::move(bytes)})));
  return Take();
}

Steps ClientHandshake::Attached(uint32_t attempt, Status status, Instant now) {
  if (state_ != State::kAttaching || attempt != attempt_) return {};
  if (now >= deadline_) return Expired(now);
  if (!status.ok()) {
    Failed(status);
  } else if (version_ == 1) {
    attached_ = true;
    steps_.push_back(SendStep(v1::Encode(v1::Verdict{true, ""})));
    Established();
  } else {
    attached_ = true;
    state_ = State::kWaiting;
    Verdict verdict;
    verdict.attempt = attempt_;
    verdict.established = true;
    steps_.push_back(SendStep(Encode(verdict)));
  }
  return Take();
}

Steps ClientHandshake::Expired(Instant now) {
  if (ended() || now < deadline()) return {};
  if (now < deadline_) {
    Failed(Status(StatusCode::kDeadlineExceeded, OutOfTime(fabric_, attempt_time_)));
  } else if (version_ == 1 && state_ == State::kAttaching) {
    Failed(Status(StatusCode::kDeadlineExceeded, OutOfTime(fabric_, attempt_time_)));
  } else {
    Silent();
  }
  return Take();
}

Instant ClientHandshake::deadline() const {
  if (ended() || state_ == State::kReconnecting) return Instant::max();
  return state_ == State::kAttaching ? std::min(attempt_deadline_, deadline_) : deadline_;
}

bool ClientHandshake::wants_bytes() const {
  switch (state_) {
    case State::kHello:
    case State::kWaiting:
      return true;
    case State::kAttaching:
      return version_ > 1;
    default:
      return false;
  }
}

void ClientHandshake::SayHello(Instant now) {
  ++hellos_;
  state_ = State::kHello;
  deadline_ = now + options_.deadline;
  attempt_ = 0;
  answers_ = 0;
  received_.Reset();
  if (version_ == 1) {
    v1::Hello hello;
    hello.node = options_.node;
    for (const Brochure& brochure : options_.fabrics) {
      if (brochure.fabric == kFirstVersionFabric) hello.fabrics.push_back(brochure.fabric);
    }
    steps_.push_back(SendStep(v1::Encode(hello)));
    return;
  }
  Hello hello;
  hello.node = options_.node;
  hello.features = kFeatures;
  hello.brochures = options_.fabrics;
  steps_.push_back(SendStep(Encode(hello)));
}

void ClientHandshake::Parse(Instant now) {
  while (wants_bytes()) {
    const FrameHead head = FindFrame(received_.rest());
    if (head.boundary == Boundary::kIncomplete) return;
    if (head.boundary == Boundary::kForeign) {
      return state_ == State::kHello ? Violated("it does not speak AR-gRPC")
                                     : Fail(StatusCode::kUnavailable, kBrokeOff);
    }
    const std::string frame = received_.TakeFrame(head.size);
    if (received_.frames() > kMaxFrames) return Violated("it sent too many frames");
    OnFrame(head, frame, now);
  }
}

void ClientHandshake::OnFrame(const FrameHead& head, const std::string& frame, Instant now) {
  if (state_ == State::kHello && head.version > version_) {
    return EndWithoutFabric(Step::Kind::kStayOnPlainTcp, OtherVersionText(head.version, version_),
                            false);
  }
  if (state_ == State::kHello && head.version == 1) return OnFirstVersion(frame, now);
  if (head.version != kVersion) return Violated(OtherVersionText(head.version, version_));
  const auto kind = static_cast<FrameKind>(head.kind);
  if (state_ == State::kHello && (kind == FrameKind::kAttach || kind == FrameKind::kVerdict)) {
    return Violated("a frame of kind " + std::to_string(head.kind) + " instead of 2");
  }
  switch (kind) {
    case FrameKind::kAttach: {
      StatusOr<Attach> attach = DecodeAttach(frame);
      return attach.ok() ? OnAttach(std::move(*attach)) : Violated(attach.status().message());
    }
    case FrameKind::kVerdict: {
      StatusOr<Verdict> verdict = DecodeVerdict(frame);
      return verdict.ok() ? OnVerdict(*verdict) : Violated(verdict.status().message());
    }
    case FrameKind::kHello:
    case FrameKind::kAnswer: {
      StatusOr<Answer> answer = DecodeAnswer(frame);
      return answer.ok() ? OnAnswer(*answer, now) : Violated(answer.status().message());
    }
    default:
      return;  // of a newer server, which knows that it may be skipped
  }
}

void ClientHandshake::OnFirstVersion(const std::string& frame, Instant now) {
  StatusOr<v1::Answer> answer = v1::DecodeAnswer(frame);
  if (!answer.ok()) return Violated(answer.status().message());
  if (version_ > 1) {
    // It says that it does not know this hello, and takes what follows for HTTP/2.
    version_to_remember_ = 1;
    version_ = 1;
    return Reconnect(Next::kHello, "it speaks version 1");
  }
  peer_.version = 1;
  peer_.node = answer->node;
  if (answer->fabric.empty()) {
    return EndWithoutFabric(Step::Kind::kStayOnTcp, answer->reason, false);
  }
  if (answer->fabric != kFirstVersionFabric || !Contains(options_.fabrics, answer->fabric)) {
    return Violated("it chose a fabric that was not offered: " + answer->fabric);
  }
  peer_.link = answer->token;
  attempt_ = 1;
  Begin(answer->fabric, now);
  Step frame_step;
  frame_step.kind = Step::Kind::kTakeFrame;
  frame_step.attempt = attempt_;
  frame_step.bytes =
      fabric::EncodeTokenFrame(fabric::TokenFrame{1, answer->address, answer->token});
  steps_.push_back(std::move(frame_step));
}

void ClientHandshake::OnAnswer(const Answer& answer, Instant now) {
  if (!answer.fabric.empty() && !Contains(options_.fabrics, answer.fabric)) {
    return Violated("it chose a fabric that was not offered: " + answer.fabric);
  }
  if (answer.attempt <= attempt_ || ++answers_ > kMaxAttempts + 1) {
    return Violated("its answers are out of order");
  }
  spoken_ = true;
  peer_.version = kVersion;
  peer_.node = answer.node;
  peer_.features = answer.features & kFeatures;
  GiveUp();
  attempt_ = answer.attempt;
  if (answer.fabric.empty()) {
    return EndWithoutFabric(Step::Kind::kStayOnTcp, answer.reason, answer.transient);
  }
  peer_.link = answer.link;
  Begin(answer.fabric, now);
}

void ClientHandshake::OnAttach(Attach attach) {
  if (attach.attempt > attempt_) return Violated("it sent a frame of an attempt to come");
  if (attach.attempt < attempt_ || given_up_) return;
  if (++frames_ > kMaxAttachFrames) return Violated("it sent too many frames");
  Step step;
  step.kind = Step::Kind::kTakeFrame;
  step.attempt = attempt_;
  step.bytes = std::move(attach.bytes);
  steps_.push_back(std::move(step));
}

void ClientHandshake::OnVerdict(const Verdict& verdict) {
  if (verdict.attempt > attempt_) return Violated("it sent a verdict on an attempt to come");
  if (verdict.attempt < attempt_) return;
  if (!verdict.established) {
    GiveUp();
    state_ = State::kWaiting;
    return;
  }
  if (!attached_) return Violated("it left TCP before this end was ready");
  Established();
}

void ClientHandshake::Begin(const std::string& fabric, Instant now) {
  state_ = State::kAttaching;
  fabric_ = fabric;
  frames_ = 0;
  attached_ = false;
  given_up_ = false;
  // The server goes through them in this end's order.
  const auto found = std::find_if(options_.fabrics.begin(), options_.fabrics.end(),
                                  [&](const Brochure& each) { return each.fabric == fabric; });
  const auto left = version_ == 1 ? 1 : options_.fabrics.end() - found;
  attempt_time_ = Share(now, deadline_, static_cast<size_t>(left));
  attempt_deadline_ = now + attempt_time_;
  Step step;
  step.kind = Step::Kind::kAttach;
  step.attempt = attempt_;
  step.fabric = fabric;
  steps_.push_back(std::move(step));
}

void ClientHandshake::Failed(const Status& status) {
  GiveUp();
  if (version_ == 1) {
    steps_.push_back(SendStep(v1::Encode(v1::Verdict{false, status.message()})));
    return EndWithoutFabric(Step::Kind::kStayOnTcp, status.message(), IsTransient(status.code()));
  }
  state_ = State::kWaiting;
  Verdict verdict;
  verdict.attempt = attempt_;
  verdict.reason = status.message();
  verdict.transient = IsTransient(status.code());
  steps_.push_back(SendStep(Encode(verdict)));
}

void ClientHandshake::GiveUp() {
  if (given_up_) return;
  given_up_ = true;
  attached_ = false;
  Step step;
  step.kind = Step::Kind::kGiveUp;
  step.attempt = attempt_;
  steps_.push_back(std::move(step));
}

void ClientHandshake::Silent() {
  if (spoken_) return Lost("it fell silent in the handshake");
  const bool again = ++silences_ == 1 && hellos_ < kMostHellos;
  // Not remembered: it may stand still, and then knows at the next connection.
  Reconnect(again ? Next::kHello : Next::kPlain, kMute, /*transient=*/true);
}

// The server speaks AR-gRPC, and one of the ends stood still, or died: it is worth another hello.
void ClientHandshake::Lost(const std::string& why) {
  Reconnect(hellos_ < kMostHellos ? Next::kHello : Next::kPlain, why, /*transient=*/true);
}

void ClientHandshake::Violated(const std::string& what) {
  if (spoken_) return Fail(StatusCode::kUnavailable, "broke the AR-gRPC handshake: " + what);
  ReconnectPlain(what);
}

// The server does not speak AR-gRPC: it is spared the hello for a while.
void ClientHandshake::ReconnectPlain(const std::string& why) {
  if (options_.tcp_allowed) version_to_remember_ = 0;
  Reconnect(Next::kPlain, why);
}

void ClientHandshake::Reconnect(Next next, const std::string& why, bool transient) {
  GiveUp();
  if (next == Next::kPlain && !options_.tcp_allowed) {
    return EndWithoutFabric(Step::Kind::kStayOnPlainTcp, why, false);
  }
  if (next == Next::kPlain) peer_ = Peer();
  state_ = State::kReconnecting;
  next_ = next;
  next_reason_ = why;
  next_transient_ = transient;
  received_.Reset();
  Step step;
  step.kind = Step::Kind::kReconnect;
  step.reason = why;
  step.transient = transient;
  steps_.push_back(std::move(step));
}

void ClientHandshake::Established() {
  if (!received_.empty() && !ContainsName(options_.without_stream, fabric_)) {
    return Fail(StatusCode::kUnavailable, kAstray);
  }
  state_ = State::kEnded;
  unread_ = received_.TakeRest();
  Step step;
  step.kind = Step::Kind::kEstablished;
  step.attempt = attempt_;
  step.fabric = fabric_;
  steps_.push_back(std::move(step));
}

void ClientHandshake::EndWithoutFabric(Step::Kind kind, std::string why, bool transient) {
  GiveUp();
  if (kind == Step::Kind::kStayOnTcp) {
    // A server that was offered nothing has no other reason to give than that.
    if (options_.fabrics.empty() && !options_.lacked.empty()) why.clear();
    for (const LackedFabric& each : options_.lacked) {
      AddReason(each.fabric + ": " + each.why, &why);
    }
  }
  Step step;
  step.kind = kind;
  step.reason = why;
  step.transient = transient;
  if (!options_.tcp_allowed) {
    step.kind = Step::Kind::kFail;
    step.status = Status(StatusCode::kUnavailable, "can be reached over tcp only: " + why);
  }
  state_ = State::kEnded;
  if (kind == Step::Kind::kStayOnPlainTcp) peer_ = Peer();
  unread_ = received_.TakeRest();
  steps_.push_back(std::move(step));
}

void ClientHandshake::Fail(StatusCode code, const std::string& what) {
  GiveUp();
  state_ = State::kEnded;
  Step step;
  step.kind = Step::Kind::kFail;
  step.status = Status(code, what);
  steps_.push_back(std::move(step));
}

}  // namespace ar_grpc::protocol
