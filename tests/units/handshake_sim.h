// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_UNITS_HANDSHAKE_SIM_H_
#define TESTS_UNITS_HANDSHAKE_SIM_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/fabric/token_frame.h"
#include "third_party/ar_grpc/protocol/handshake.h"

// A client and its server, a clock that is none, TCP that takes a millisecond, and fabrics that do
// as they are told.
namespace ar_grpc::protocol::testing {

using fabric::testing::Check;
using std::chrono::milliseconds;

inline constexpr milliseconds kHop{1};

enum class Does {
  kWork,    // both ends exchange a frame each, then are ready
  kSilent,  // nothing comes of it
  kFail,    // this end fails at once
  kRefuse,  // this end fails when the peer's frame has come
  kFlood,   // sends frames without end
};
struct Fabric {
  Does client = Does::kWork;
  Does server = Does::kWork;
  StatusCode code = StatusCode::kFailedPrecondition;
};

struct Outcome {
  Step::Kind kind;
  uint32_t attempt = 0;
  std::string fabric;
  std::string reason;
  std::string unread;
  bool transient = false;
  Status status;
  Peer peer;
  int connection = 0;  // the how-manieth
  milliseconds at{0};
};

struct Settings {
  std::vector<std::string> client_fabrics = {"shm"};
  std::vector<std::string> server_fabrics = {"shm"};
  std::vector<LackedFabric> client_lacks;
  std::vector<LackedFabric> server_lacks;
  std::map<std::string, Fabric> fabrics;
  uint16_t version = kVersion;
  std::function<Status(const Brochure&)> reaches = [](const Brochure&) { return OkStatus(); };
};

class Sim {
 public:
  explicit Sim(Settings settings) : settings_(std::move(settings)) {
    client_ = std::make_unique<ClientHandshake>(
        Options(settings_.client_fabrics, settings_.client_lacks, 'c'), settings_.version);
  }

  // What may be set before Run.
  //
  // Changes the bytes of the how-manieth kSend (from 0) of either end; nullopt: lost, and TCP
  // closed.
  std::function<std::optional<std::string>(int number, bool from_client, std::string bytes)> forge;
  // Before the how-manieth event (from 0).
  std::function<void(Sim*, int number)> before;
  // Instead of a server's machine: what is said to the first bytes of the client on a connection;
  // nullopt: closes.
  std::function<std::optional<std::string>(int connection, const std::string& bytes)> script;
  // Whether each server hears, and can be connected to.
  bool server_deaf = false;
  bool server_gone = false;
  // Of what happens at the same time: after a standstill, much does.
  bool timers_last = false;

  void Run() {
    const Instant end = now_ + std::chrono::seconds(120);
    Accept();
    CarryOut(true, connection_, client_->Start(now_));
    for (events_ = 0; !client_outcome || !server_outcome_settled(); ++events_) {
      Check(events_ < 20000, "it ends in so many events");
      if (before) before(this, events_);
      if (!Next()) break;
      Check(now_ < end, "it ends in time");
    }
  }

  // Nothing happens at this end from now on for so long.
  void Stop(bool client, milliseconds time) {
    (client ? client_stopped_until_ : server_stopped_until_) = now_ + time;
  }
  // The end dies; a client's TCP closes, a server's too, and it does not come again.
  void Kill(bool client) {
    if (client) {
      client_dead = true;
    } else {
      server_gone = true;
      for (auto& [number, server] : servers_) server.dead = true;
    }
    CloseTcp(connection_, client);
  }

  Instant now() const { return now_; }
  int events() const { return events_; }
  int sends() const { return sends_; }
  int hellos() const { return hellos_; }
  int remembered() const { return client_->version_to_remember(); }
  const std::vector<std::string>& sent() const { return sent_; }
  bool client_dead = false;
  std::optional<Outcome> client_outcome;
  // Of the client's last connection that had one.
  std::map<int, Outcome> server_outcomes;

  // What must hold whatever happened.
  void CheckOutcome() {
    if (client_dead) {
      for (auto& [number, server] : servers_) {
        Check(server.dead || server_outcomes.count(number) != 0, "each server ends");
      }
      return;
    }
    Check(client_outcome.has_value(), "the client ends");
    Check(live_[0].empty() || client_outcome->kind == Step::Kind::kEstablished,
          "no attachment is left at the client");
    if (forge) return;  // a changed "no" is a "yes", and the endpoint then finds bytes on TCP
    if (client_outcome->kind != Step::Kind::kEstablished || settings_.version != kVersion) return;
    const auto server = server_outcomes.find(client_outcome->connection);
    if (server == server_outcomes.end()) return;
    Check(server->second.kind == Step::Kind::kEstablished, "established at both ends");
    Check(server->second.fabric == client_outcome->fabric, "over one fabric");
    Check(server->second.attempt == client_outcome->attempt, "in one attempt");
    Check(server->second.peer.link == client_outcome->peer.link, "as one link");
  }

 private:
  struct Server {
    std::unique_ptr<ServerHandshake> machine;
    bool dead = false;
    bool said = false;  // the script has
  };

  static HandshakeOptions Options(const std::vector<std::string>& fabrics,
                                  const std::vector<LackedFabric>& lacked, uint8_t node) {
    HandshakeOptions options;
    options.node.fill(node);
    options.lacked = lacked;
    for (const std::string& name : fabrics) options.fabrics.push_back({name, "at " + name});
    return options;
  }

  void Accept() {
    ++connection_;
    open_[connection_] = true;
    Server server;
    server.machine = std::make_unique<ServerHandshake>(
        Options(settings_.server_fabrics, settings_.server_lacks, 's'), settings_.reaches);
    server.machine->Start(now_);
    servers_[connection_] = std::move(server);
  }

  void At(milliseconds delay, bool client, std::function<void()> what) {
    queue_.emplace(now_ + delay, Event{client, std::move(what)});
  }

  // The next event or deadline; false: nothing is to come.
  bool Next() {
    Instant best = Instant::max();
    int who = -1;  // 0: the queue, 1: the client, 2: a server
    const auto consider = [&](Instant when, int what) {
      if (when < best) {
        best = when;
        who = what;
      }
    };
    int number = 0;
    const auto look_at_timers = [&] {
      if (!client_outcome && !client_dead && client_->deadline() != Instant::max()) {
        consider(std::max(client_->deadline(), client_stopped_until_), 1);
      }
      for (auto& [each, server] : servers_) {
        if (server.dead || script || server_deaf || server.machine->ended()) continue;
        const Instant when = std::max(server.machine->deadline(), server_stopped_until_);
        if (when < best) number = each;
        consider(when, 2);
      }
    };
    if (!timers_last) look_at_timers();
    auto chosen = queue_.end();
    for (auto event = queue_.begin(); event != queue_.end(); ++event) {
      const Instant when = std::max(
          event->first, event->second.client ? client_stopped_until_ : server_stopped_until_);
      if (when < best) {
        chosen = event;
        consider(when, 0);
      }
    }
    if (timers_last) look_at_timers();
    if (who < 0) return false;
    now_ = std::max(now_, best);
    if (who == 0) {
      const std::function<void()> what = std::move(chosen->second.what);
      queue_.erase(chosen);
      what();
    } else if (who == 1) {
      CarryOut(true, connection_, client_->Expired(now_));
    } else {
      CarryOut(false, number, servers_[number].machine->Expired(now_));
    }
    return true;
  }

  bool server_outcome_settled() const {
    for (const auto& [number, server] : servers_) {
      if (!server.dead && !script && !server_deaf && !server.machine->ended()) return false;
    }
    return true;
  }

  bool HasClient(int connection) const {
    return connection == connection_ && !reconnecting_ && !client_outcome && !client_dead;
  }

  void CloseTcp(int connection, bool by_client) {
    if (!std::exchange(open_[connection], false)) return;
    At(kHop, !by_client, [=] {
      if (by_client) {
        Server& server = servers_[connection];
        if (!server.dead && !script && !server_deaf) {
          CarryOut(false, connection, server.machine->Closed(now_));
        }
      } else if (HasClient(connection)) {
        CarryOut(true, connection, client_->Closed(now_));
      }
    });
  }

  void Deliver(bool to_client, int connection, const std::string& bytes) {
    At(kHop, to_client, [=] {
      if (to_client) {
        if (HasClient(connection)) CarryOut(true, connection, client_->Received(bytes, now_));
        return;
      }
      Server& server = servers_[connection];
      if (server.dead || server_deaf) return;
      if (script) {
        if (std::exchange(server.said, true)) return;
        const std::optional<std::string> said = script(connection, bytes);
        if (said) return Deliver(true, connection, *said);
        return CloseTcp(connection, false);
      }
      CarryOut(false, connection, server.machine->Received(bytes, now_));
    });
  }

  void CarryOut(bool client, int connection, const Steps& steps) {
    for (const Step& step : steps) CarryOutOne(client, connection, step);
  }

  void CarryOutOne(bool client, int connection, const Step& step) {
    const int end = client ? 0 : 1;
    const std::pair<int, uint32_t> key(connection, step.attempt);
    switch (step.kind) {
      case Step::Kind::kSend: {
        const FrameHead head = FindFrame(step.bytes);
        hellos_ += client && head.kind == 1;
        std::string bytes = step.bytes;
        sent_.push_back(bytes);
        if (forge) {
          std::optional<std::string> forged = forge(sends_, client, bytes);
          ++sends_;
          if (!forged) return CloseTcp(connection, client);
          bytes = std::move(*forged);
        } else {
          ++sends_;
        }
        if (open_[connection]) Deliver(!client, connection, bytes);
        return;
      }
      case Step::Kind::kAttach:
        Check(live_[end].count(key) == 0, "one attachment an attempt");
        live_[end][key] = step.fabric;
        return Attach(client, connection, step.attempt, step.fabric);
      case Step::Kind::kTakeFrame:
        Check(live_[end].count(key) == 1, "frames go to an attachment that is there");
        return TakeFrame(client, connection, step.attempt, live_[end][key], step.bytes);
      case Step::Kind::kGiveUp:
        Check(live_[end].erase(key) == 1, "what is given up was there");
        return;
      case Step::Kind::kReconnect:
        Check(client, "clients connect");
        CloseTcp(connection, true);
        reconnecting_ = true;
        At(kHop, true, [this] {
          if (client_dead) return;
          reconnecting_ = false;
          if (server_gone) return CarryOut(true, connection_, client_->Closed(now_));
          Accept();
          CarryOut(true, connection_, client_->Reconnected(now_));
        });
        return;
      default:
        End(client, connection, step);
    }
  }

  void End(bool client, int connection, const Step& step) {
    Outcome outcome;
    outcome.kind = step.kind;
    outcome.attempt = step.attempt;
    outcome.fabric = step.fabric;
    outcome.reason = step.reason;
    outcome.transient = step.transient;
    outcome.status = step.status;
    outcome.connection = connection;
    outcome.at = std::chrono::duration_cast<milliseconds>(now_ - Instant{});
    if (client) {
      Check(!client_outcome && client_->ended(), "one end");
      outcome.peer = client_->peer();
      outcome.unread = client_->TakeUnread();
      client_outcome = outcome;
      if (step.kind == Step::Kind::kFail) return CloseTcp(connection, true);
      if (step.kind != Step::Kind::kEstablished && open_[connection]) {
        Deliver(false, connection, "PRI * HTTP/2.0");
      }
      return;
    }
    Server& server = servers_[connection];
    Check(server.machine->ended() && server_outcomes.count(connection) == 0, "one end");
    outcome.peer = server.machine->peer();
    outcome.unread = server.machine->TakeUnread();
    server_outcomes[connection] = outcome;
    if (step.kind == Step::Kind::kFail) CloseTcp(connection, false);
  }

  Does DoesAt(bool client, const std::string& fabric) {
    const Fabric& script = settings_.fabrics[fabric];
    return client ? script.client : script.server;
  }

  void Tell(bool client, int connection, uint32_t attempt,
            std::function<Steps(ClientHandshake*)> at_client,
            std::function<Steps(ServerHandshake*)> at_server) {
    At(kHop / 2, client, [=] {
      // As of a real one, what comes too late is told nevertheless.
      (void)attempt;
      if (client) {
        if (HasClient(connection)) {
          CarryOut(true, connection, at_client(client_.get()));
        }
      } else if (!servers_[connection].dead) {
        CarryOut(false, connection, at_server(servers_[connection].machine.get()));
      }
    });
  }
  void Say(bool client, int connection, uint32_t attempt, const std::string& frame) {
    Tell(
        client, connection, attempt,
        [=](ClientHandshake* machine) { return machine->FrameToSend(attempt, frame, now_); },
        [=](ServerHandshake* machine) { return machine->FrameToSend(attempt, frame, now_); });
  }
  void Done(bool client, int connection, uint32_t attempt, const Status& status) {
    Tell(
        client, connection, attempt,
        [=](ClientHandshake* machine) { return machine->Attached(attempt, status, now_); },
        [=](ServerHandshake* machine) { return machine->Attached(attempt, status, now_); });
  }

  void Attach(bool client, int connection, uint32_t attempt, const std::string& fabric) {
    const Does does = DoesAt(client, fabric);
    const Status failed(settings_.fabrics[fabric].code, "as told");
    if (does == Does::kFail) return Done(client, connection, attempt, failed);
    if (does == Does::kFlood) {
      for (int i = 0; i <= kMaxAttachFrames; ++i) Say(client, connection, attempt, "flood");
    }
    if (!client && does != Does::kSilent) {
      fabric::TokenFrame frame;
      frame.address = "@somewhere";
      frame.token.fill('t');
      Say(client, connection, attempt, fabric::EncodeTokenFrame(frame));
    }
  }

  void TakeFrame(bool client, int connection, uint32_t attempt, const std::string& fabric,
                 const std::string& frame) {
    const Does does = DoesAt(client, fabric);
    if (does == Does::kRefuse) {
      return Done(client, connection, attempt,
                  Status(settings_.fabrics[fabric].code, "as told, refused"));
    }
    if (does != Does::kWork) return;
    if (client) {
      Check(fabric::DecodeTokenFrame(frame).ok() || frame == "flood" || forge, "its frame");
      Say(client, connection, attempt, "here I am");
      // A client of version 1 tells the server over the fabric.
      if (settings_.version == 1 && !script) Done(false, connection, attempt, OkStatus());
    }
    Done(client, connection, attempt, OkStatus());
  }

  struct Event {
    bool client;
    std::function<void()> what;
  };

  Settings settings_;
  Instant now_{};
  std::multimap<Instant, Event> queue_;
  std::unique_ptr<ClientHandshake> client_;
  std::map<int, Server> servers_;
  std::map<int, bool> open_;
  int connection_ = 0;
  bool reconnecting_ = false;
  int events_ = 0;
  int sends_ = 0;
  int hellos_ = 0;
  std::vector<std::string> sent_;
  Instant client_stopped_until_{};
  Instant server_stopped_until_{};
  std::map<std::pair<int, uint32_t>, std::string> live_[2];
};

}  // namespace ar_grpc::protocol::testing

#endif  // TESTS_UNITS_HANDSHAKE_SIM_H_
