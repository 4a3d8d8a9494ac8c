// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_HANDSHAKE_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_HANDSHAKE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/handshake_input.h"
#include "third_party/ar_grpc/protocol/hello.h"

// How two ends agree on a fabric, as two pure state machines: no thread, no clock, no socket. The
// owner tells a machine what happened and carries out the steps that it gives back, in their order.
//
//   client  hello     its brochures
//   server  answer    attempt 1: a fabric that both reach   (or none: stay on TCP)
//   both    attach    frames of that fabric's attachment
//   client  verdict   its end is ready                      (or the attempt failed)
//   server  verdict   both are ready: TCP is left now       (or the attempt failed)
//   server  answer    attempt 2: the next fabric, after a failed attempt ... at last none
//
// The client speaks first on TCP again after the last answer, so a server skips what of ours
// crossed it. A client that hears nothing, or loses TCP, connects anew and says hello again: to a
// server that has answered twice more, to another once; then it goes without.
//
// On each connection one deadline bounds all of it at each end, and each attempt gets its share of
// what is left, so that fabrics that fall silent one after the other still end on TCP. The explicit
// states that end in established, fallback or failed are those of brpc's rdma handshake.
namespace ar_grpc::protocol {

using Instant = std::chrono::steady_clock::time_point;

// What a machine wants done.
struct Step {
  enum class Kind {
    kSend,    // `bytes` on TCP
    kAttach,  // begin `fabric`'s attachment for `attempt` (a server's Accept, a client's Connect)
    kTakeFrame,       // give `bytes` to the attachment of `attempt`
    kGiveUp,          // destroy the attachment of `attempt`, and its connection if there is one
    kReconnect,       // close TCP and connect anew, then Reconnected (clients only)
    kEstablished,     // leave TCP; `fabric` and `attempt` are what the connection is of
    kStayOnTcp,       // stay on TCP; both ends speak AR-gRPC
    kStayOnPlainTcp,  // stay on TCP; the other end does not speak AR-gRPC, or not so that it can be
                      // used
    kFail,            // close the connection; `status` says why
  };
  Kind kind;
  std::string bytes;
  std::string fabric;
  uint32_t attempt = 0;
  // Of kStayOnTcp, kStayOnPlainTcp, kReconnect: why, for the log. Of kFail: why it would be TCP,
  // where that is not allowed; else empty.
  std::string reason;
  // Of kStayOnTcp: what failed may work later, so the connection is to be made anew soon. Of
  // kReconnect, and a client's kStayOnPlainTcp: the server stood still or died, which is worth a
  // warning.
  bool transient = false;
  // Of kFail; reads on after "the peer <address> ".
  Status status;
};
using Steps = std::vector<Step>;

// Bounds of what a peer can make this end do, as the thread that serves it polls for others, too.
// Fabrics that are tried in one handshake.
inline constexpr uint32_t kMaxAttempts = 8;
// Attach frames that the peer sends for one attempt.
inline constexpr int kMaxAttachFrames = 64;
// Frames of any kind that the peer sends on one connection, those of unknown kind included.
inline constexpr int kMaxFrames = 1024;

// A fabric that an end may use and cannot.
struct LackedFabric {
  std::string fabric;
  std::string why;
};

// Of either end.
struct HandshakeOptions {
  NodeId node{};
  // What this end can use, the preferred first. `tcp` is not among them.
  std::vector<Brochure> fabrics;
  // Whether the connection may stay on TCP. A client that may not fails instead; a server always
  // may.
  bool tcp_allowed = true;
  // What would be among them, if it could be used. Where a connection stays on TCP, a client's
  // reason names all of these, and a server's those that the client offers.
  std::vector<LackedFabric> lacked;
  // Those of `fabrics` that carry no stream: under them TCP goes on after the verdict.
  std::vector<std::string> without_stream;
  std::chrono::milliseconds deadline{5000};
};

// What the peer turned out to be, once the machine has ended.
struct Peer {
  NodeId node{};
  uint64_t features = 0;  // that both ends have
  Token link{};           // of an established link
  uint16_t version = 0;   // 0: it does not speak AR-gRPC
};

class ClientHandshake {
 public:
  // `version`: of the hello, kOldestVersion to kVersion: what is remembered of this server.
  ClientHandshake(HandshakeOptions options, uint16_t version);

  Steps Start(Instant now);
  // Bytes of TCP have come. What belongs to no frame is in TakeUnread() in the end.
  Steps Received(std::string_view bytes, Instant now);
  // TCP was closed, or failed, before the end. While it reconnects: it could not.
  Steps Closed(Instant now);
  Steps Reconnected(Instant now);
  // The attachment of `attempt` has a frame for the peer.
  Steps FrameToSend(uint32_t attempt, std::string bytes, Instant now);
  // The attachment of `attempt` has ended: kOk with a connection, of which all that this end needs
  // is at hand.
  Steps Attached(uint32_t attempt, Status status, Instant now);
  // To be called at deadline().
  Steps Expired(Instant now);

  // When Expired is to be called next.
  Instant deadline() const;
  bool ended() const { return state_ == State::kEnded; }
  // Whether bytes of TCP are to be read now. While they are not, none may be taken from TCP: the
  // end may come by another event, and what is there then belongs to others.
  bool wants_bytes() const;
  const Peer& peer() const { return peer_; }
  // What is to be remembered of the server's address: its version, 0 for none; -1: nothing.
  int version_to_remember() const { return version_to_remember_; }
  std::string TakeUnread() { return std::exchange(unread_, {}); }

 private:
  enum class State {
    kHello,         // waits for the first answer on this connection
    kAttaching,     // waits for this end of the fabric
    kWaiting,       // has sent its verdict; waits for the server's, or for the next answer
    kReconnecting,  // waits for TCP
    kEnded,
  };
  enum class Next { kHello, kPlain };  // on the fresh connection

  // All of these add to `steps_`, which the public methods return.
  void SayHello(Instant now);
  void Parse(Instant now);
  void OnFrame(const FrameHead& head, const std::string& frame, Instant now);
  void OnFirstVersion(const std::string& frame, Instant now);
  void OnAnswer(const Answer& answer, Instant now);
  void OnAttach(Attach attach);
  void OnVerdict(const Verdict& verdict);
  void Begin(const std::string& fabric, Instant now);
  void Failed(const Status& status);
  void GiveUp();
  void Silent();
  void Lost(const std::string& why);
  void Violated(const std::string& what);
  void ReconnectPlain(const std::string& why);
  void Reconnect(Next next, const std::string& why, bool transient = false);
  void Established();
  void EndWithoutFabric(Step::Kind kind, std::string why, bool transient);
  void Fail(StatusCode code, const std::string& what);
  Steps Take() { return std::exchange(steps_, {}); }

  const HandshakeOptions options_;
  uint16_t version_;
  State state_ = State::kHello;
  Next next_ = Next::kHello;
  std::string next_reason_;
  bool next_transient_ = false;
  bool spoken_ = false;  // the server has sent an answer of version 2, on any connection
  int hellos_ = 0;
  int silences_ = 0;
  Instant deadline_{};
  Instant attempt_deadline_{};
  std::chrono::milliseconds attempt_time_{};
  uint32_t attempt_ = 0;
  uint32_t answers_ = 0;   // on this connection
  int frames_ = 0;         // that the server sent in this attempt
  bool attached_ = false;  // this end of the attempt's fabric is ready
  bool given_up_ = true;   // there is no attachment of this attempt, or no more
  std::string fabric_;
  HandshakeInput received_;
  Peer peer_;
  int version_to_remember_ = -1;
  std::string unread_;
  Steps steps_;
};

class ServerHandshake {
 public:
  // kOk where a peer with this brochure can be reached; pure as far as the machine is concerned.
  using Reaches = std::function<Status(const Brochure& brochure)>;

  ServerHandshake(HandshakeOptions options, Reaches reaches);

  Steps Start(Instant now);
  Steps Received(std::string_view bytes, Instant now);
  Steps Closed(Instant now);
  Steps FrameToSend(uint32_t attempt, std::string bytes, Instant now);
  // Told before bytes that were received later.
  Steps Attached(uint32_t attempt, Status status, Instant now);
  Steps Expired(Instant now);

  Instant deadline() const;
  bool ended() const { return state_ == State::kEnded; }
  bool wants_bytes() const;
  const Peer& peer() const { return peer_; }
  std::string TakeUnread() { return std::exchange(unread_, {}); }

 private:
  enum class State {
    kPeek,       // waits for the first bytes: a hello, or anything else
    kAttaching,  // waits for its end of the fabric and for the client's verdict
    kDraining,   // has sent the last answer, after attempts; skips frames that crossed it
    kToken,      // version 1: waits for the attachment's first frame, for its answer
    kVerdict,    // version 1: waits for the client's verdict
    kEnded,
  };

  void Parse(Instant now);
  void OnFirst(const FrameHead& head, const std::string& frame, Instant now);
  void OnHello(const Hello& hello, Instant now);
  void OnFrame(const FrameHead& head, const std::string& frame, Instant now);
  void OnAttach(Attach attach);
  void OnVerdict(const Verdict& verdict, Instant now);
  void NextAttempt(Instant now);
  void Begin(const std::string& fabric, size_t left, Instant now);
  void Failed(const std::string& why, bool transient, bool tell, Instant now);
  void CompareOffers(const std::vector<std::string>& offered);
  std::string AllReasons() const;
  void Refuse(const std::string& why);
  void OnFirstVersion(const std::string& frame, Instant now);
  void AnswerFirstVersion(const std::string& address);
  void OnFirstVersionVerdict(const std::string& frame);
  void GiveUp();
  void Established();
  void EndWithoutFabric(Step::Kind kind, const std::string& why);
  void Fail(StatusCode code, const std::string& what);
  bool Has(const std::string& fabric) const;
  Steps Take() { return std::exchange(steps_, {}); }

  const HandshakeOptions options_;
  const Reaches reaches_;
  State state_ = State::kPeek;
  Instant deadline_{};
  Instant attempt_deadline_{};
  std::chrono::milliseconds attempt_time_{};
  std::vector<std::string> candidates_;  // in order; those that were tried are gone
  uint32_t attempt_ = 0;
  int frames_ = 0;
  bool attached_ = false;
  bool given_up_ = true;
  bool client_ready_ = false;  // the client has said that its end is ready
  std::string fabric_;
  std::string reasons_;
  std::string lacks_;  // what the client offers, and this end allows and cannot use
  bool transient_ = false;
  HandshakeInput received_;
  Peer peer_;
  std::string unread_;
  Steps steps_;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_HANDSHAKE_H_
