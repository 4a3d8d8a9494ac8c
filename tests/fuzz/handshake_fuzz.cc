// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Both ends' machines of the handshake, whose peer says anything at any time, while their own
// attachments and the clock do what they may. Each comes to its end, in few steps.

#include <chrono>

#include "tests/fuzz/fuzz.h"
#include "third_party/ar_grpc/protocol/handshake.h"

namespace ar_grpc::protocol {
namespace {

using fuzz::Input;
using fuzz::Must;

// Deadlines that pass until a machine ends: those of its connections and of their attempts.
constexpr int kMostDeadlines = 64;

// An owner that keeps to what handshake.h asks of it.
template <typename Machine>
class Owner {
 public:
  explicit Owner(Machine machine) : machine_(std::move(machine)) {}

  void Run(Input* input) {
    Carry(machine_.Start(now_));
    while (!machine_.ended() && !input->empty()) Act(input);
    for (int i = 0; !machine_.ended(); ++i) {
      Must(i < kMostDeadlines, "it ends");
      if (reconnecting_) {
        Reconnected();
      } else {
        Expire();
      }
    }
    static_cast<void>(machine_.TakeUnread());
  }

 private:
  void Act(Input* input) {
    const uint8_t what = input->Byte();
    now_ += std::chrono::milliseconds(what >> 4);
    if (reconnecting_) {
      if (what % 2 == 0) return Reconnected();
      return Carry(Close());
    }
    switch (what % 8) {
      case 0:
        return Expire();
      case 1:
        return Carry(Close());
      case 2:
        if (attaching_) Carry(machine_.FrameToSend(attempt_, input->Text(input->Byte()), now_));
        return;
      case 3:
      case 4:
        if (!std::exchange(attaching_, false)) return;
        return Carry(machine_.Attached(
            attempt_, what % 8 == 3 ? Status() : Status(StatusCode::kUnavailable, "no"), now_));
      default:
        if (!machine_.wants_bytes()) return;
        return Carry(machine_.Received(input->Text(input->Number(2)), now_));
    }
  }

  Steps Close() {
    reconnecting_ = false;
    return machine_.Closed(now_);
  }
  void Expire() {
    now_ = std::max(now_, machine_.deadline());
    Carry(machine_.Expired(now_));
  }
  void Reconnected() {
    reconnecting_ = false;
    if constexpr (std::is_same_v<Machine, ClientHandshake>) Carry(machine_.Reconnected(now_));
  }

  void Carry(const Steps& steps) {
    bool handed_on = false;
    for (const Step& step : steps) {
      Must(!handed_on, "TCP is others' after the end");
      switch (step.kind) {
        case Step::Kind::kSend:
          Must(!step.bytes.empty() && step.bytes.size() <= kMaxFrame, "frames are short");
          break;
        case Step::Kind::kAttach:
          Must(!attaching_, "one attachment at a time");
          attaching_ = true;
          attempt_ = step.attempt;
          break;
        case Step::Kind::kTakeFrame:
          Must(step.attempt == attempt_, "frames are for the attempt that is under way");
          break;
        case Step::Kind::kGiveUp:
          attaching_ = false;
          break;
        case Step::Kind::kReconnect:
          attaching_ = false;
          reconnecting_ = true;
          break;
        case Step::Kind::kFail:
          Must(!step.status.ok() || !step.reason.empty(), "a failure says why");
          handed_on = true;
          break;
        case Step::Kind::kEstablished:
        case Step::Kind::kStayOnTcp:
        case Step::Kind::kStayOnPlainTcp:
          handed_on = true;
          break;
      }
    }
    Must(handed_on == machine_.ended(), "the last step ends it");
    Must(++rounds_ < 100000, "it does not go on for ever");
  }

  Machine machine_;
  Instant now_{};
  bool attaching_ = false;
  bool reconnecting_ = false;
  uint32_t attempt_ = 0;
  int rounds_ = 0;
};

HandshakeOptions Options(uint8_t bits) {
  HandshakeOptions options;
  options.node.fill(7);
  for (const char* const name : {"shm", "verbs", "loopback"}) {
    if ((bits & 1) == 0) options.fabrics.push_back({name, "here"});
    bits = static_cast<uint8_t>(bits >> 1);
  }
  options.tcp_allowed = (bits & 1) == 0;
  if ((bits & 2) != 0) options.without_stream = {"verbs"};
  if ((bits & 4) != 0) options.lacked = {{"shm", "no memory"}, {"verbs", "no device"}};
  return options;
}

}  // namespace
}  // namespace ar_grpc::protocol

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ar_grpc::protocol;  // NOLINT: an entry point
  ar_grpc::fuzz::Input input(data, size);
  const uint8_t what = input.Byte();
  HandshakeOptions options = Options(input.Byte());
  if (what % 3 == 0) {
    Owner<ServerHandshake>(ServerHandshake(options, [](const Brochure& brochure) {
      return brochure.bytes.empty() ? ar_grpc::Status(ar_grpc::StatusCode::kUnavailable, "not it")
                                    : ar_grpc::Status();
    })).Run(&input);
  } else {
    const uint16_t version = what % 3 == 1 ? kVersion : kOldestVersion;
    Owner<ClientHandshake>(ClientHandshake(options, version)).Run(&input);
  }
  return 0;
}
