// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include <algorithm>
#include <utility>

#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/token_frame.h"
#include "third_party/ar_grpc/protocol/handshake.h"
#include "third_party/ar_grpc/protocol/handshake_steps.h"

namespace ar_grpc::protocol {
namespace {

constexpr char kSilent[] = "fell silent in the AR-gRPC handshake";
// How long at least a client has to take the last answer.
constexpr std::chrono::milliseconds kShortestDrain{1000};

}  // namespace

ServerHandshake::ServerHandshake(HandshakeOptions options, Reaches reaches)
    : options_(std::move(options)), reaches_(std::move(reaches)) {}

Steps ServerHandshake::Start(Instant now) {
  deadline_ = now + options_.deadline;
  return {};
}

Steps ServerHandshake::Received(std::string_view bytes, Instant now) {
  if (ended()) return {};
  received_.Add(bytes);
  Parse(now);
  return Take();
}

Steps ServerHandshake::Closed(Instant) {
  if (ended()) return {};
  Fail(StatusCode::kUnavailable, "closed the connection in the AR-gRPC handshake");
  return Take();
}

Steps ServerHandshake::FrameToSend(uint32_t attempt, std::string bytes, Instant now) {
  if (attempt != attempt_ || given_up_) return {};
  if (state_ == State::kToken) {
    StatusOr<fabric::TokenFrame> frame = fabric::DecodeTokenFrame(bytes);
    if (frame.ok()) {
      peer_.link = frame->token;
      AnswerFirstVersion(frame->address);
      state_ = State::kVerdict;
      Parse(now);
    } else {
      Failed(frame.status().message(), false, true, now);
    }
  } else if (state_ == State::kAttaching) {
    if (bytes.size() > fabric::kLargestAttachFrame) {
      Failed(fabric_ + " made a frame that is too long", false, true, now);
    } else {
      steps_.push_back(SendStep(Encode(Attach{attempt, std::move(bytes)})));
    }
  }
  return Take();
}

Steps ServerHandshake::Attached(uint32_t attempt, Status status, Instant now) {
  if (ended() || attempt != attempt_ || given_up_ || attached_) return {};
  if (!status.ok()) {
    Failed(status.message(), IsTransient(status.code()), true, now);
  } else {
    attached_ = true;
    if (client_ready_) Established();
  }
  return Take();
}

Steps ServerHandshake::Expired(Instant now) {
  if (ended() || now < deadline()) return {};
  if (state_ == State::kAttaching || state_ == State::kToken) {
    Failed(OutOfTime(fabric_, attempt_time_), true, true, now);
  } else {
    Fail(StatusCode::kDeadlineExceeded, kSilent);
  }
  return Take();
}

Instant ServerHandshake::deadline() const {
  switch (state_) {
    case State::kAttaching:
    case State::kToken:
      return attempt_deadline_;
    case State::kEnded:
      return Instant::max();
    default:
      return deadline_;
  }
}

bool ServerHandshake::wants_bytes() const {
  switch (state_) {
    case State::kPeek:
    case State::kDraining:
    case State::kVerdict:
      return true;
    case State::kAttaching:
      return !client_ready_;
    default:
      return false;
  }
}

void ServerHandshake::Parse(Instant now) {
  while (wants_bytes()) {
    const FrameHead head = FindFrame(received_.rest());
    if (head.boundary == Boundary::kIncomplete) return;
    if (head.boundary == Boundary::kForeign) {
      if (state_ == State::kPeek) return EndWithoutFabric(Step::Kind::kStayOnPlainTcp, "");
      if (state_ == State::kDraining) return EndWithoutFabric(Step::Kind::kStayOnTcp, AllReasons());
      return Fail(StatusCode::kInvalidArgument, kBrokeOff);
    }
    const std::string frame = received_.TakeFrame(head.size);
    if (received_.frames() > kMaxFrames) {
      return Fail(StatusCode::kInvalidArgument, "sent too many frames");
    }
    if (state_ == State::kPeek) {
      OnFirst(head, frame, now);
    } else if (state_ == State::kVerdict) {
      OnFirstVersionVerdict(frame);
    } else {
      OnFrame(head, frame, now);
    }
  }
}

void ServerHandshake::OnFirst(const FrameHead& head, const std::string& frame, Instant now) {
  if (head.version == 1) return OnFirstVersion(frame, now);
  if (head.version != kVersion) return Refuse(OtherVersionText(head.version, kVersion));
  if (head.kind == 0 || head.kind > static_cast<uint16_t>(FrameKind::kAttach)) {
    return Refuse("the peer began with a frame of kind " + std::to_string(head.kind));
  }
  StatusOr<Hello> hello = DecodeHello(frame);
  if (!hello.ok()) {
    return Fail(StatusCode::kInvalidArgument, "sent a bad hello: " + hello.status().message());
  }
  OnHello(*hello, now);
}

// A newer peer: it reads from the answer's header which version to speak the next time.
void ServerHandshake::Refuse(const std::string& why) {
  Answer answer;
  answer.node = options_.node;
  answer.features = kFeatures;
  answer.attempt = 1;
  answer.reason = why;
  steps_.push_back(SendStep(Encode(answer)));
  EndWithoutFabric(Step::Kind::kStayOnPlainTcp, why);
}

void ServerHandshake::OnHello(const Hello& hello, Instant now) {
  peer_.version = kVersion;
  peer_.node = hello.node;
  peer_.features = hello.features & kFeatures;
  std::vector<std::string> offered;
  for (const Brochure& brochure : hello.brochures) {
    offered.push_back(brochure.fabric);
    if (!Has(brochure.fabric) || ContainsName(candidates_, brochure.fabric)) continue;
    const Status reaches = reaches_(brochure);
    if (reaches.ok()) {
      candidates_.push_back(brochure.fabric);
    } else {
      AddReason(brochure.fabric + ": " + reaches.message(), &reasons_);
    }
  }
  CompareOffers(offered);
  NextAttempt(now);
}

// Notes what this end lacks of what the client offers. What the client lacks is in its own log.
void ServerHandshake::CompareOffers(const std::vector<std::string>& offered) {
  for (const LackedFabric& each : options_.lacked) {
    if (!ContainsName(offered, each.fabric)) continue;
    AddReason(each.fabric + ": the server lacks it: " + each.why, &lacks_);
  }
  if (offered.empty()) {
    AddReason("the client offers no fabric", &reasons_);
  } else if (candidates_.empty() && reasons_.empty() && lacks_.empty()) {
    AddReason("the server allows none of the client's fabrics", &reasons_);
  }
}

// Why there is no fabric: what failed comes first, as an answer is cut off at kMaxText.
std::string ServerHandshake::AllReasons() const {
  std::string reasons = reasons_;
  if (!lacks_.empty()) AddReason(lacks_, &reasons);
  return reasons;
}

void ServerHandshake::OnFrame(const FrameHead& head, const std::string& frame, Instant now) {
  if (head.version != kVersion) return Fail(StatusCode::kInvalidArgument, kBrokeOff);
  switch (static_cast<FrameKind>(head.kind)) {
    case FrameKind::kAttach: {
      StatusOr<Attach> attach = DecodeAttach(frame);
      if (attach.ok()) return OnAttach(std::move(*attach));
      return Fail(StatusCode::kInvalidArgument, "sent a " + attach.status().message());
    }
    case FrameKind::kVerdict: {
      StatusOr<Verdict> verdict = DecodeVerdict(frame);
      if (verdict.ok()) return OnVerdict(*verdict, now);
      return Fail(StatusCode::kInvalidArgument, "sent a " + verdict.status().message());
    }
    case FrameKind::kHello:
    case FrameKind::kAnswer:
      return Fail(StatusCode::kInvalidArgument, kBrokeOff);
    default:
      return;  // of a newer client, which knows that it may be skipped
  }
}

void ServerHandshake::OnAttach(Attach attach) {
  if (attach.attempt > attempt_) {
    return Fail(StatusCode::kInvalidArgument, "sent a frame of an attempt to come");
  }
  if (attach.attempt < attempt_ || given_up_) return;
  if (++frames_ > kMaxAttachFrames) {
    return Fail(StatusCode::kInvalidArgument, "sent too many frames");
  }
  Step step;
  step.kind = Step::Kind::kTakeFrame;
  step.attempt = attempt_;
  step.bytes = std::move(attach.bytes);
  steps_.push_back(std::move(step));
}

void ServerHandshake::OnVerdict(const Verdict& verdict, Instant now) {
  if (verdict.attempt > attempt_) {
    return Fail(StatusCode::kInvalidArgument, "sent a verdict on an attempt to come");
  }
  if (verdict.attempt < attempt_ || state_ != State::kAttaching) return;
  if (!verdict.established) return Failed(verdict.reason, verdict.transient, false, now);
  client_ready_ = true;
  // It waits for this end's verdict.
  if (!received_.empty()) return Fail(StatusCode::kInvalidArgument, kAstray);
  if (attached_) Established();
}

// Attempts the next fabric, or says that there is none.
void ServerHandshake::NextAttempt(Instant now) {
  const bool tried = attempt_ > 0;
  Answer answer;
  answer.node = options_.node;
  answer.features = kFeatures;
  answer.attempt = ++attempt_;
  if (!candidates_.empty() && attempt_ <= kMaxAttempts &&
      Share(now, deadline_, candidates_.size()).count() > 0) {
    const size_t left = candidates_.size();
    answer.fabric = candidates_.front();
    candidates_.erase(candidates_.begin());
    answer.link = peer_.link = NewToken();
    steps_.push_back(SendStep(Encode(answer)));
    return Begin(answer.fabric, left, now);
  }
  if (!candidates_.empty()) {
    AddReason("no time is left for " + candidates_.front(), &reasons_);
    transient_ = true;
  }
  given_up_ = true;
  answer.reason = AllReasons();
  answer.transient = transient_;
  steps_.push_back(SendStep(Encode(answer)));
  if (!tried) return EndWithoutFabric(Step::Kind::kStayOnTcp, AllReasons());
  state_ = State::kDraining;
  deadline_ = std::max(deadline_, now + kShortestDrain);
}

void ServerHandshake::Begin(const std::string& fabric, size_t left, Instant now) {
  fabric_ = fabric;
  frames_ = 0;
  attached_ = false;
  client_ready_ = false;
  given_up_ = false;
  attempt_time_ = Share(now, deadline_, left);
  attempt_deadline_ = now + attempt_time_;
  state_ = peer_.version == 1 ? State::kToken : State::kAttaching;
  Step step;
  step.kind = Step::Kind::kAttach;
  step.attempt = attempt_;
  step.fabric = fabric;
  steps_.push_back(std::move(step));
}

// `tell`: the client does not know yet.
void ServerHandshake::Failed(const std::string& why, bool transient, bool tell, Instant now) {
  GiveUp();
  AddReason(fabric_ + ": " + why, &reasons_);
  transient_ = transient_ || transient;
  if (peer_.version == 1) {
    if (state_ == State::kVerdict) return;  // which is "no", or a lie
    fabric_.clear();
    AnswerFirstVersion("");
    return EndWithoutFabric(Step::Kind::kStayOnTcp, AllReasons());
  }
  if (tell) {
    Verdict verdict;
    verdict.attempt = attempt_;
    verdict.reason = why;
    verdict.transient = transient;
    steps_.push_back(SendStep(Encode(verdict)));
  }
  NextAttempt(now);
}

// --- version 1 ---

void ServerHandshake::OnFirstVersion(const std::string& frame, Instant now) {
  StatusOr<v1::Hello> hello = v1::DecodeHello(frame);
  if (!hello.ok()) {
    return Fail(StatusCode::kInvalidArgument, "sent a " + hello.status().message());
  }
  peer_.version = 1;
  peer_.node = hello->node;
  if (ContainsName(hello->fabrics, kFirstVersionFabric) && Has(kFirstVersionFabric)) {
    attempt_ = 1;
    return Begin(kFirstVersionFabric, 1, now);
  }
  CompareOffers(hello->fabrics);
  AnswerFirstVersion("");
  EndWithoutFabric(Step::Kind::kStayOnTcp, AllReasons());
}

void ServerHandshake::AnswerFirstVersion(const std::string& address) {
  v1::Answer answer;
  answer.node = options_.node;
  answer.fabric = fabric_;
  answer.address = address;
  if (fabric_.empty()) {
    answer.reason = AllReasons();
  } else {
    answer.token = peer_.link;
  }
  steps_.push_back(SendStep(v1::Encode(answer)));
}

void ServerHandshake::OnFirstVersionVerdict(const std::string& frame) {
  StatusOr<v1::Verdict> verdict = v1::DecodeVerdict(frame);
  if (!verdict.ok()) {
    return Fail(StatusCode::kInvalidArgument, "sent a " + verdict.status().message());
  }
  if (!verdict->established) {
    AddReason(verdict->reason, &reasons_);
    return EndWithoutFabric(Step::Kind::kStayOnTcp, AllReasons());
  }
  // Its end has been told after this one.
  if (!attached_) {
    return Fail(StatusCode::kInvalidArgument,
                "says it is connected over " + fabric_ + ", but no connection came");
  }
  Established();
}

// --- the ends ---

void ServerHandshake::GiveUp() {
  if (given_up_) return;
  given_up_ = true;
  attached_ = false;
  Step step;
  step.kind = Step::Kind::kGiveUp;
  step.attempt = attempt_;
  steps_.push_back(std::move(step));
}

void ServerHandshake::Established() {
  if (!received_.empty()) return Fail(StatusCode::kInvalidArgument, kAstray);
  if (peer_.version > 1) {
    Verdict verdict;
    verdict.attempt = attempt_;
    verdict.established = true;
    steps_.push_back(SendStep(Encode(verdict)));
  }
  state_ = State::kEnded;
  Step step;
  step.kind = Step::Kind::kEstablished;
  step.attempt = attempt_;
  step.fabric = fabric_;
  steps_.push_back(std::move(step));
}

void ServerHandshake::EndWithoutFabric(Step::Kind kind, const std::string& why) {
  GiveUp();
  state_ = State::kEnded;
  if (kind == Step::Kind::kStayOnPlainTcp) peer_ = Peer();
  unread_ = received_.TakeRest();
  Step step;
  step.kind = kind;
  step.reason = why;
  step.transient = transient_;
  steps_.push_back(std::move(step));
}

void ServerHandshake::Fail(StatusCode code, const std::string& what) {
  GiveUp();
  state_ = State::kEnded;
  Step step;
  step.kind = Step::Kind::kFail;
  step.status = Status(code, what);
  steps_.push_back(std::move(step));
}

bool ServerHandshake::Has(const std::string& fabric) const {
  return Contains(options_.fabrics, fabric);
}

}  // namespace ar_grpc::protocol
