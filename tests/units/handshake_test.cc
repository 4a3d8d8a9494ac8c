// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// The machines of both ends against each other, and against bytes of peers that are older, newer,
// broken, dead, silent or stopped: whatever comes, each ends, and in time.

#include <string>
#include <vector>

#include "tests/units/handshake_sim.h"

namespace {

using namespace ar_grpc;                     // NOLINT
using namespace ar_grpc::protocol;           // NOLINT
using namespace ar_grpc::protocol::testing;  // NOLINT
using Kind = Step::Kind;

// Of this thread: what only computes is late by nothing else.
double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

constexpr milliseconds kDeadline{5000};

void CheckText(const std::string& text, const std::string& part, int line = __builtin_LINE()) {
  Check(text.find(part) != std::string::npos, "'" + part + "' in '" + text + "'", line);
}

void CheckBoth(const Sim& sim, Kind client, Kind server, int line = __builtin_LINE()) {
  Check(sim.client_outcome.has_value() && sim.client_outcome->kind == client,
        "the client's end: " +
            std::to_string(sim.client_outcome ? static_cast<int>(sim.client_outcome->kind) : -1) +
            " " + (sim.client_outcome ? sim.client_outcome->status.message() : ""),
        line);
  const auto found = sim.server_outcomes.find(sim.client_outcome->connection);
  Check(found != sim.server_outcomes.end() && found->second.kind == server, "the server's end",
        line);
}

void OneFabric() {
  Sim sim({});
  sim.Run();
  sim.CheckOutcome();
  CheckBoth(sim, Kind::kEstablished, Kind::kEstablished);
  const Outcome& client = *sim.client_outcome;
  const Outcome& server = sim.server_outcomes[1];
  Check(client.fabric == "shm" && client.attempt == 1 && client.at < milliseconds(20), "at once");
  Check(client.peer.node[0] == 's' && server.peer.node[0] == 'c', "they know each other");
  Check(client.peer.features == kFeatures && server.peer.features == kFeatures, "features");
  Check(client.peer.version == 2 && sim.remembered() == -1 && sim.hellos() == 1, "one hello");
}

void TheFirstThatWorksIsTaken() {
  for (const Does does : {Does::kFail, Does::kRefuse}) {
    for (const bool client : {true, false}) {
      Settings settings;
      settings.client_fabrics = {"verbs", "strange", "shm"};
      settings.server_fabrics = {"shm", "verbs"};
      (client ? settings.fabrics["verbs"].client : settings.fabrics["verbs"].server) = does;
      Sim sim(settings);
      sim.Run();
      sim.CheckOutcome();
      CheckBoth(sim, Kind::kEstablished, Kind::kEstablished);
      Check(sim.client_outcome->fabric == "shm" && sim.client_outcome->attempt == 2, "the second");
    }
  }
}

void WhatDoesNotReachIsNotTried() {
  Settings settings;
  settings.client_fabrics = settings.server_fabrics = {"verbs", "shm"};
  settings.reaches = [](const Brochure& brochure) {
    Check(brochure.bytes == "at " + brochure.fabric, "the client's brochure");
    return brochure.fabric == "verbs" ? Status(StatusCode::kUnavailable, "another subnet")
                                      : OkStatus();
  };
  Sim sim(settings);
  sim.Run();
  CheckBoth(sim, Kind::kEstablished, Kind::kEstablished);
  Check(sim.client_outcome->fabric == "shm" && sim.client_outcome->attempt == 1, "at once");

  settings.reaches = [](const Brochure&) { return Status(StatusCode::kUnavailable, "far away"); };
  Sim none(settings);
  none.Run();
  CheckBoth(none, Kind::kStayOnTcp, Kind::kStayOnTcp);
  Check(none.client_outcome->reason == "verbs: far away; shm: far away", "why");
  Check(!none.client_outcome->transient, "it will not change");
}

void NoCommonFabric() {
  Settings settings;
  settings.client_fabrics = {"verbs"};
  Sim sim(settings);
  sim.Run();
  CheckBoth(sim, Kind::kStayOnTcp, Kind::kStayOnTcp);
  CheckText(sim.client_outcome->reason, "the server allows none of the client's fabrics");
  settings.client_fabrics = {};
  Sim empty(settings);
  empty.Run();
  CheckBoth(empty, Kind::kStayOnTcp, Kind::kStayOnTcp);
  CheckText(empty.client_outcome->reason, "the client offers no fabric");
}

void CheckReasons(const Settings& settings, const std::string& client, const std::string& server,
                  int line = __builtin_LINE()) {
  Sim sim(settings);
  sim.Run();
  sim.CheckOutcome();
  CheckBoth(sim, Kind::kStayOnTcp, Kind::kStayOnTcp, line);
  const std::string& said = sim.client_outcome->reason;
  Check(said == client, "the client says '" + said + "'", line);
  const std::string& theirs = sim.server_outcomes.rbegin()->second.reason;
  Check(theirs == server, "the server says '" + theirs + "'", line);
}

void WhatAnEndLacksIsAReason() {
  const std::vector<LackedFabric> no_device = {{"verbs", "no device"}};
  Settings settings;
  settings.reaches = [](const Brochure&) { return Status(StatusCode::kUnavailable, "far away"); };
  settings.client_lacks = no_device;
  settings.server_fabrics = {"shm", "verbs"};
  CheckReasons(settings, "shm: far away; verbs: no device", "shm: far away");
  // Where both lack it, each says why in its own log.
  settings.server_fabrics = {"shm"};
  settings.server_lacks = {{"verbs", "no library"}};
  CheckReasons(settings, "shm: far away; verbs: no device", "shm: far away");
  // Once, however often it is offered.
  settings.client_lacks = {};
  settings.client_fabrics = {"shm", "verbs", "verbs"};
  std::string said = "shm: far away; verbs: the server lacks it: no library";
  CheckReasons(settings, said, said);

  // What could be attached to, and failed.
  settings.reaches = [](const Brochure&) { return OkStatus(); };
  settings.fabrics["shm"].client = Does::kRefuse;
  said = "shm: as told, refused; verbs: the server lacks it: no library";
  CheckReasons(settings, said, said);

  // That nothing is in common is no reason of its own then.
  settings.client_fabrics = {"verbs"};
  said = "verbs: the server lacks it: no library";
  CheckReasons(settings, said, said);
  settings.client_fabrics = {};
  settings.client_lacks = {{"shm", "no memory"}, {"verbs", "no device"}};
  CheckReasons(settings, "shm: no memory; verbs: no device", "the client offers no fabric");

  // Who may use nothing but what it lacks fails, and says so.
  HandshakeOptions options;
  options.tcp_allowed = false;
  options.lacked = no_device;
  ClientHandshake client(options, kVersion);
  (void)client.Start(Instant{});
  Answer answer;
  answer.attempt = 1;
  answer.reason = "the client offers no fabric";
  const Steps steps = client.Received(Encode(answer), Instant{});
  Check(steps.size() == 1 && steps[0].kind == Kind::kFail, "fails");
  Check(steps[0].reason == "verbs: no device", "why");

  // Of version 1, which asks for shared memory alone.
  Settings first;
  first.version = 1;
  first.server_fabrics = {"verbs"};
  first.server_lacks = {{"shm", "no memory"}};
  first.client_lacks = no_device;
  CheckReasons(first, "shm: the server lacks it: no memory; verbs: no device",
               "shm: the server lacks it: no memory");
}

void AllFailAndTcpGoesOn() {
  for (const StatusCode code :
       {StatusCode::kFailedPrecondition, StatusCode::kNotFound, StatusCode::kResourceExhausted}) {
    for (const bool client : {true, false}) {
      Settings settings;
      settings.client_fabrics = settings.server_fabrics = {"verbs", "shm"};
      settings.fabrics["verbs"] = settings.fabrics["shm"] =
          Fabric{client ? Does::kRefuse : Does::kWork, client ? Does::kWork : Does::kRefuse, code};
      Sim sim(settings);
      sim.Run();
      sim.CheckOutcome();
      CheckBoth(sim, Kind::kStayOnTcp, Kind::kStayOnTcp);
      CheckText(sim.client_outcome->reason, "verbs: as told, refused; shm: as told, refused");
      const bool transient = code == StatusCode::kResourceExhausted;
      Check(sim.client_outcome->transient == transient, "transient at the client");
      Check(sim.server_outcomes[1].transient == transient, "transient at the server");
      Check(sim.server_outcomes[1].unread == "PRI * HTTP/2.0", "HTTP/2 begins after the frames");
    }
  }
}

// At both ends at once, so that their words cross.
void SilentFabricsLeaveTimeForTcp() {
  for (const int which : {0, 1, 2}) {
    Settings settings;
    settings.client_fabrics = settings.server_fabrics = {"verbs", "shm"};
    for (const std::string name : {"verbs", "shm"}) {
      if (which != 1) settings.fabrics[name].client = Does::kSilent;
      if (which != 0) settings.fabrics[name].server = Does::kSilent;
    }
    Sim sim(settings);
    sim.Run();
    sim.CheckOutcome();
    CheckBoth(sim, Kind::kStayOnTcp, Kind::kStayOnTcp);
    Check(sim.hellos() == 1 && sim.client_outcome->at < kDeadline, "before the deadline");
    Check(sim.client_outcome->transient && sim.server_outcomes[1].transient, "it may work later");
    CheckText(sim.client_outcome->reason, "verbs: no verbs within 166");
    CheckText(sim.client_outcome->reason, "shm: no shm within 166");
    Check(sim.server_outcomes[1].unread == "PRI * HTTP/2.0", "HTTP/2 begins after the frames");
  }
  Settings settings;
  settings.client_fabrics = settings.server_fabrics = {"verbs", "shm"};
  settings.fabrics["verbs"].client = settings.fabrics["verbs"].server = Does::kSilent;
  Sim sim(settings);
  sim.Run();
  CheckBoth(sim, Kind::kEstablished, Kind::kEstablished);
  Check(sim.client_outcome->fabric == "shm" && sim.client_outcome->at < kDeadline, "the second");
}

void EightFabrics() {
  Settings settings;
  settings.client_fabrics.clear();
  for (int i = 0; i < 8; ++i) {
    settings.client_fabrics.push_back("f" + std::to_string(i));
    settings.fabrics[settings.client_fabrics.back()].server = Does::kSilent;
  }
  settings.server_fabrics = settings.client_fabrics;
  Sim sim(settings);
  sim.Run();
  CheckBoth(sim, Kind::kStayOnTcp, Kind::kStayOnTcp);
  Check(sim.client_outcome->attempt == 0 && sim.client_outcome->at < kDeadline, "all were tried");
  CheckText(sim.client_outcome->reason, "f7: no f7 within");
}

void ForcedFabric() {
  HandshakeOptions options;
  options.fabrics = {{"shm", ""}};
  options.tcp_allowed = false;
  const auto forced = [](const Steps& steps, const std::string& why, int line = __builtin_LINE()) {
    Check(!steps.empty() && steps.back().kind == Kind::kFail, "it fails", line);
    Check(steps.back().status.code() == StatusCode::kUnavailable, "unavailable", line);
    CheckText(steps.back().reason, why, line);
  };
  const Instant start{};
  const auto begun = [&](uint16_t version) {
    ClientHandshake client(options, version);
    (void)client.Start(start);
    return client;
  };
  ClientHandshake foreign = begun(2);
  forced(foreign.Received("HTTP/1.1 400", start), "it does not speak AR-gRPC");
  Check(foreign.version_to_remember() == -1, "nothing to remember: it is not spared");
  ClientHandshake closed = begun(2);
  forced(closed.Closed(start), "closed the connection at the hello");
  ClientHandshake refused = begun(2);
  Answer answer;
  answer.attempt = 1;
  answer.reason = "it is Sunday";
  forced(refused.Received(Encode(answer), start), "it is Sunday");
  ClientHandshake older = begun(1);
  v1::Answer old;
  old.reason = "it is Monday";
  forced(older.Received(v1::Encode(old), start), "it is Monday");
}

void PlainClientsAreLeftAlone() {
  const Instant start{};
  ServerHandshake server(HandshakeOptions(), [](const Brochure&) { return OkStatus(); });
  (void)server.Start(start);
  Check(server.Received("P", start).back().kind == Kind::kStayOnPlainTcp, "at the first byte");
  Check(server.TakeUnread() == "P" && server.ended() && server.peer().version == 0, "all unread");
  ServerHandshake silent(HandshakeOptions(), [](const Brochure&) { return OkStatus(); });
  (void)silent.Start(start);
  Check(silent.Received("AR-g", start).empty() && silent.wants_bytes(), "not yet");
  Check(silent.Expired(start + kDeadline - milliseconds(1)).empty(), "not yet");
  CheckText(silent.Expired(start + kDeadline).back().status.message(), "fell silent");
}

void OtherVersionsAndKinds() {
  const Instant start{};
  Hello hello;
  for (const int version : {0, 3, 9, 65535}) {
    ServerHandshake server(HandshakeOptions(), [](const Brochure&) { return OkStatus(); });
    (void)server.Start(start);
    std::string frame = Encode(hello);
    frame[8] = static_cast<char>(version & 0xff);
    frame[9] = static_cast<char>(version >> 8);
    const Steps steps = server.Received(frame + "PRI", start);
    Check(steps.size() == 2 && steps[1].kind == Kind::kStayOnPlainTcp, "plain");
    const StatusOr<Answer> answer = DecodeAnswer(steps[0].bytes);
    Check(answer.ok() && answer->fabric.empty() && server.TakeUnread() == "PRI", "an answer");
    CheckText(answer->reason, "version " + std::to_string(version));
  }
  // An unknown kind: the first is refused, later ones are skipped.
  for (const bool first : {true, false}) {
    HandshakeOptions options;
    options.fabrics = {{"shm", ""}};
    ServerHandshake server(options, [](const Brochure&) { return OkStatus(); });
    (void)server.Start(start);
    std::string unknown = Encode(hello);
    unknown[10] = 77;
    if (first) {
      Check(server.Received(unknown, start).back().kind == Kind::kStayOnPlainTcp, "plain");
      continue;
    }
    hello.brochures = {{"shm", ""}};
    Check(server.Received(Encode(hello), start).size() == 2, "an answer and an attachment");
    Check(server.Received(unknown + unknown, start).empty() && !server.ended(), "skipped");
  }
  for (const std::string& frame :
       {Encode(Answer()), Encode(Verdict()), Encode(Attach{1, ""}), v1::Encode(v1::Answer())}) {
    ServerHandshake server(HandshakeOptions(), [](const Brochure&) { return OkStatus(); });
    (void)server.Start(start);
    Check(server.Received(frame, start).back().kind == Kind::kFail, "no hello");
  }
  HandshakeOptions options;
  options.fabrics = {{"shm", ""}};
  ClientHandshake client(options, 2);
  (void)client.Start(start);
  std::string unknown = Encode(hello);
  unknown[10] = 77;
  Check(client.Received(unknown, start).empty() && !client.ended(), "skipped");
  std::string newer = Encode(Answer());
  newer[8] = 7;
  const Steps steps = client.Received(newer + "rest", start);
  Check(steps.size() == 1 && steps[0].kind == Kind::kStayOnPlainTcp, "on this connection");
  Check(steps[0].reason == "the peer speaks version 7, this end speaks 2", "why");
  Check(client.TakeUnread() == "rest" && client.version_to_remember() == -1, "what follows");
}

void ServersThatAreNone() {
  struct Row {
    std::string said;
    std::string why;
    int remembered;
  };
  Answer unknown;
  unknown.attempt = 1;
  unknown.fabric = "verbs";
  const std::string malformed = Encode(Answer()).substr(0, 8) + std::string("\2\0\2\0\1\0\0\0x", 9);
  for (const Row& row :
       std::vector<Row>{{"HTTP/1.1 400 Bad Request", "it does not speak AR-gRPC", 0},
                        {std::string("\0\0\0\4\0\0\0\0\0", 9), "it does not speak AR-gRPC", 0},
                        {Encode(Hello()), "a frame of kind 1 instead of 2", 0},
                        {Encode(Verdict()), "a frame of kind 3 instead of 2", 0},
                        {Encode(unknown), "a fabric that was not offered: verbs", 0},
                        {malformed, "malformed answer", 0},
                        {"", "it closed the connection at the hello", -1}}) {
    Sim sim({});
    sim.script = [&](int connection, const std::string&) -> std::optional<std::string> {
      Check(connection == 1 || row.remembered == 0, "connected once more at most");
      if (row.said.empty()) return std::nullopt;
      return row.said;
    };
    sim.Run();
    Check(sim.client_outcome->kind == Kind::kStayOnPlainTcp && sim.hellos() == 1, row.why);
    Check(sim.client_outcome->connection == 2, "on a fresh connection");
    CheckText(sim.client_outcome->reason, row.why);
    Check(sim.remembered() == row.remembered, "what is remembered");
  }
}

void SilentServers() {
  Sim sim({});
  sim.server_deaf = true;
  sim.Run();
  Check(sim.client_outcome->kind == Kind::kStayOnPlainTcp && sim.hellos() == 2, "two hellos");
  CheckText(sim.client_outcome->reason, "it did not answer the hello");
  Check(sim.client_outcome->at >= 2 * kDeadline, "after two deadlines");
  // A stopped one looks like that, and knows the hello when it goes on.
  Check(sim.client_outcome->transient && sim.remembered() == -1, "greeted the next time");
}

void FirstVersionServer() {
  // Today's server: it answers a version that it does not know with no fabric, and goes on as
  // HTTP/2.
  for (const bool works : {true, false}) {
    Settings settings;
    if (!works) settings.fabrics["shm"].client = Does::kRefuse;
    Sim sim(settings);
    int connections = 0;
    sim.script = [&](int connection, const std::string& bytes) -> std::optional<std::string> {
      connections = connection;
      v1::Answer answer;
      answer.node.fill('1');
      if (connection == 1) {
        Check(FindFrame(bytes).version == 2, "a hello of version 2");
        answer.reason = "the peer speaks version 2, this end speaks 1";
        return v1::Encode(answer);
      }
      const StatusOr<v1::Hello> hello = v1::DecodeHello(bytes);
      Check(hello.ok() && hello->fabrics == std::vector<std::string>{"shm"}, "then of version 1");
      answer.fabric = "shm";
      answer.address = "@ar-grpc.x";
      answer.token.fill('t');
      return v1::Encode(answer);
    };
    sim.Run();
    sim.CheckOutcome();
    Check(sim.client_outcome->kind == (works ? Kind::kEstablished : Kind::kStayOnTcp), "its end");
    Check(connections == 2 && sim.remembered() == 1, "remembered");
    Check(sim.client_outcome->peer.version == 1 && sim.client_outcome->peer.node[0] == '1', "it");
    Check(sim.client_outcome->peer.features == 0, "no features");
    if (works) Check(sim.client_outcome->peer.link[0] == 't', "the token is the link's name");
    const StatusOr<v1::Verdict> verdict = v1::DecodeVerdict(sim.sent().back());
    Check(verdict.ok() && verdict->established == works, "its verdict");
  }
}

void FirstVersionClient() {
  const Instant start{};
  v1::Hello hello;
  hello.node.fill('c');
  hello.fabrics = {"verbs", "shm", "tcp"};
  HandshakeOptions options;
  options.fabrics = {{"shm", "here"}};
  const auto reaches = [](const Brochure&) { return OkStatus(); };
  fabric::TokenFrame frame;
  frame.address = "@ar-grpc.x";
  frame.token.fill('t');
  const std::string yes = v1::Encode(v1::Verdict{true, ""});
  const std::string no = v1::Encode(v1::Verdict{false, "the test says so"});
  enum Case { kWorks, kFirstOfAll, kLies, kRefuses, kFails, kCannot, kGarbage, kAstray, kMute };
  for (const Case one :
       {kWorks, kFirstOfAll, kLies, kRefuses, kFails, kCannot, kGarbage, kAstray, kMute}) {
    ServerHandshake server(options, reaches);
    (void)server.Start(start);
    const std::string early = one == kFirstOfAll ? no : "";
    Steps steps = server.Received(v1::Encode(hello) + early, start);
    Check(steps.size() == 1 && steps[0].kind == Kind::kAttach && !server.wants_bytes(), "attaches");
    if (one == kCannot) {
      steps = server.Attached(1, Status(StatusCode::kResourceExhausted, "full"), start);
      Check(steps.size() == 3 && steps[2].kind == Kind::kStayOnTcp && steps[2].transient, "stays");
      const StatusOr<v1::Answer> answer = v1::DecodeAnswer(steps[1].bytes);
      Check(answer.ok() && answer->fabric.empty() && answer->reason == "shm: full", "none");
      continue;
    }
    steps = server.FrameToSend(1, fabric::EncodeTokenFrame(frame), start);
    const StatusOr<v1::Answer> answer = v1::DecodeAnswer(steps[0].bytes);
    Check(answer.ok() && answer->fabric == "shm" && answer->address == "@ar-grpc.x", "an answer");
    Check(answer->token[0] == 't' && server.peer().link[0] == 't', "its token");
    if (one == kFirstOfAll) {
      Check(steps.back().kind == Kind::kStayOnTcp, "the verdict was there already");
      continue;
    }
    Check(server.wants_bytes(), "its verdict");
    switch (one) {
      case kWorks:
        Check(server.Attached(1, OkStatus(), start).empty(), "not yet");
        steps = server.Received(yes, start);
        Check(steps.size() == 1 && steps[0].kind == Kind::kEstablished, "established");
        Check(server.peer().version == 1 && server.peer().node[0] == 'c', "the client");
        break;
      case kLies:
        CheckText(server.Received(yes, start).back().status.message(), "no connection came");
        break;
      case kRefuses:
        Check(server.Attached(1, OkStatus(), start).empty(), "not yet");
        steps = server.Received(no + "PRI", start);
        Check(steps.size() == 2 && steps[0].kind == Kind::kGiveUp, "gives up");
        Check(steps[1].kind == Kind::kStayOnTcp && server.TakeUnread() == "PRI", "goes on");
        break;
      case kFails:
        Check(server.Attached(1, Status(StatusCode::kUnavailable, "gone"), start).size() == 1,
              "no");
        Check(server.Received(no, start).back().transient, "it may work later");
        break;
      case kGarbage:
        Check(server.Received("garbage", start).back().kind == Kind::kFail, "fails");
        break;
      case kAstray:
        Check(server.Attached(1, OkStatus(), start).empty(), "not yet");
        CheckText(server.Received(yes + "x", start).back().status.message(), "wrote to TCP");
        break;
      default:
        Check(server.Expired(start + milliseconds(4999)).empty(), "waits");
        CheckText(server.Expired(start + kDeadline).back().status.message(), "fell silent");
    }
  }
  for (const std::vector<std::string>& fabrics :
       std::vector<std::vector<std::string>>{{}, {"verbs", "tcp"}}) {
    ServerHandshake server(options, reaches);
    (void)server.Start(start);
    hello.fabrics = fabrics;
    const Steps steps = server.Received(v1::Encode(hello), start);
    Check(steps.size() == 2 && steps[1].kind == Kind::kStayOnTcp, "stays");
    Check(v1::DecodeAnswer(steps[0].bytes)->fabric.empty(), "none");
  }
}

void BytesAfterTheVerdict() {
  for (const bool client : {true, false}) {
    Sim sim({});
    sim.forge = [&](int, bool from_client, std::string bytes) -> std::optional<std::string> {
      const StatusOr<Verdict> verdict = DecodeVerdict(bytes);
      if (verdict.ok() && verdict->established && from_client != client) bytes += "astray";
      return bytes;
    };
    sim.Run();
    const Outcome& outcome = client ? *sim.client_outcome : sim.server_outcomes[1];
    Check(outcome.kind == Kind::kFail, "it fails");
    CheckText(outcome.status.message(), "wrote to TCP after it had left it");
  }
}

void FramesThatDoNotFit() {
  const auto run = [](std::function<std::string(const std::string&)> change, bool of_client) {
    Sim sim({});
    sim.forge = [&](int, bool from_client, std::string bytes) -> std::optional<std::string> {
      return from_client == of_client && DecodeAttach(bytes).ok() ? change(bytes) : bytes;
    };
    sim.Run();
    return of_client ? sim.server_outcomes[1] : *sim.client_outcome;
  };
  for (const bool client : {true, false}) {
    const Outcome future = run([](const std::string&) { return Encode(Attach{9, "?"}); }, client);
    Check(future.kind == Kind::kFail, "of an attempt to come");
    CheckText(future.status.message(), "attempt to come");
    const Outcome verdict = run(
        [](const std::string&) {
          Verdict yes;
          yes.attempt = 9;
          return Encode(yes);
        },
        client);
    Check(verdict.kind == Kind::kFail, "of an attempt to come");
    const Outcome past =
        run([](const std::string& bytes) { return Encode(Attach{0, "?"}) + bytes; }, client);
    Check(past.kind == Kind::kEstablished, "of an old attempt: ignored");
    Settings settings;
    (client ? settings.fabrics["shm"].client : settings.fabrics["shm"].server) = Does::kFlood;
    Sim flood(settings);
    flood.Run();
    const Outcome& outcome = client ? flood.server_outcomes[1] : *flood.client_outcome;
    Check(outcome.kind == Kind::kFail, "too many");
    CheckText(outcome.status.message(), "too many frames");
  }
}

void AServerThatRefusesAfterTheClientsVerdict() {
  Settings settings;
  settings.client_fabrics = settings.server_fabrics = {"verbs", "shm"};
  settings.fabrics["verbs"].server = Does::kRefuse;
  Sim sim(settings);
  sim.Run();
  CheckBoth(sim, Kind::kEstablished, Kind::kEstablished);
  Check(sim.client_outcome->fabric == "shm", "the next");
  int ready = 0;
  for (const std::string& frame : sim.sent()) {
    const StatusOr<Verdict> verdict = DecodeVerdict(frame);
    ready += verdict.ok() && verdict->established && verdict->attempt == 1;
  }
  Check(ready == 1, "the client was ready");
}

// --- what may happen at every step ---

int EventsOf(const Settings& settings) {
  Sim sim(settings);
  sim.Run();
  return sim.events();
}

Settings Two() {
  Settings settings;
  settings.client_fabrics = settings.server_fabrics = {"verbs", "shm"};
  settings.fabrics["verbs"].server = Does::kRefuse;
  return settings;
}

void DeathAtEveryStep() {
  for (const Settings& settings : {Settings(), Two()}) {
    const int events = EventsOf(settings);
    Check(events >= 8, "steps");
    for (const bool client : {true, false}) {
      for (int at = 0; at <= events; ++at) {
        Sim sim(settings);
        sim.before = [&](Sim* self, int number) {
          if (number == at) self->Kill(client);
        };
        sim.Run();
        sim.CheckOutcome();
        Check(sim.now() - Instant{} < milliseconds(100), "at once");
      }
    }
  }
}

void SilenceAtEveryStep() {
  for (const Settings& settings : {Settings(), Two()}) {
    const int events = EventsOf(settings);
    for (const bool client : {true, false}) {
      for (int at = 0; at <= events; ++at) {
        Sim sim(settings);
        sim.before = [&](Sim* self, int number) {
          if (number != at) return;
          if (client) {
            self->client_dead = true;  // and its TCP stays open
          } else {
            self->server_deaf = true;
          }
        };
        sim.Run();
        sim.CheckOutcome();
        Check(sim.now() - Instant{} <= 3 * kDeadline + milliseconds(1100), "in time");
        if (!client) Check(sim.client_outcome.has_value(), "the client ends");
      }
    }
  }
}

void FiveSecondsOfStandstillAtEveryStep() {
  for (const Settings& settings : {Settings(), Two()}) {
    const int events = EventsOf(settings);
    for (const milliseconds pause : {kDeadline, milliseconds(5500), milliseconds(7000)}) {
      for (const bool client : {true, false}) {
        for (int at = 0; at < events; ++at) {
          for (const bool timers_last : {false, true}) {
            Sim sim(settings);
            sim.timers_last = timers_last;
            sim.before = [&](Sim* self, int number) {
              if (number == at) self->Stop(client, pause);
            };
            sim.Run();
            sim.CheckOutcome();
            Check(sim.client_outcome->kind == Kind::kEstablished,
                  std::string(client ? "client" : "server") + " stopped at " + std::to_string(at) +
                      " for " + std::to_string(pause.count()) + ": " +
                      std::to_string(static_cast<int>(sim.client_outcome->kind)) + " " +
                      sim.client_outcome->reason + sim.client_outcome->status.message());
            Check(sim.hellos() <= 3, "three hellos at most");
          }
        }
      }
    }
  }
}

void ShortStandstillEndsWell() {
  const int events = EventsOf(Two());
  for (int pause = 500; pause < 5000; pause += 500) {
    for (const bool client : {true, false}) {
      for (int at = 0; at < events; ++at) {
        Sim sim(Two());
        sim.timers_last = pause % 1000 == 0;
        sim.before = [&](Sim* self, int number) {
          if (number == at) self->Stop(client, milliseconds(pause));
        };
        sim.Run();
        sim.CheckOutcome();
        const Outcome& outcome = *sim.client_outcome;
        Check(outcome.kind == Kind::kEstablished ||
                  (outcome.kind == Kind::kStayOnTcp && outcome.transient),
              "established, or tcp for now");
      }
    }
  }
}

void EveryPrefixAndBit() {
  for (const Settings& settings : {Settings(), Two()}) {
    Sim good(settings);
    good.Run();
    const std::vector<std::string> frames = good.sent();
    int runs = 0;
    for (size_t which = 0; which < frames.size(); ++which) {
      const auto run = [&](const std::string& forged, bool close) {
        Sim sim(settings);
        bool closed = false;
        sim.forge = [&](int number, bool, std::string bytes) -> std::optional<std::string> {
          if (number == static_cast<int>(which)) {
            closed = close;
            return forged;
          }
          if (std::exchange(closed, false)) return std::nullopt;
          return bytes;
        };
        sim.Run();
        sim.CheckOutcome();
        ++runs;
      };
      for (size_t size = 0; size < frames[which].size(); ++size) {
        run(frames[which].substr(0, size), false);
        run(frames[which].substr(0, size), true);
      }
      for (size_t i = 0; i < frames[which].size(); ++i) {
        for (int bit = 0; bit < 8; ++bit) {
          std::string forged = frames[which];
          forged[i] = static_cast<char>(forged[i] ^ (1 << bit));
          run(forged, false);
        }
      }
    }
    Check(runs > 3000, "many");
  }
}

// Frames that are skipped are bounded, too: each costs the thread that polls for others some work.
void FloodsOfFrames() {
  const Instant start{};
  HandshakeOptions options;
  options.fabrics = {{"shm", ""}};
  Hello hello;
  hello.brochures = {{"shm", ""}};
  std::string unknown = Encode(hello).substr(0, kHeader);
  unknown[10] = 77;
  unknown[12] = unknown[13] = 0;  // no body
  Verdict no;
  no.attempt = 1;
  Answer answer;
  answer.attempt = 1;
  answer.fabric = "shm";
  for (const std::string& each : {unknown, Encode(Attach{0, "late"}), Encode(Verdict())}) {
    std::string flood;
    while (flood.size() < size_t{8} << 20) flood += each;
    std::string few;
    for (int i = 0; i < kMaxFrames - 10; ++i) few += each;
    for (const bool draining : {false, true}) {
      for (const bool too_many : {false, true}) {
        ServerHandshake server(options, [](const Brochure&) { return OkStatus(); });
        (void)server.Start(start);
        Check(server.Received(Encode(hello), start).size() == 2, "an attempt");
        if (draining) Check(server.Received(Encode(no), start).size() == 2, "the last answer");
        const double began = CpuSeconds();
        const Steps steps = server.Received(too_many ? flood : few, start);
        if (too_many) {
          Check(!steps.empty() && steps.back().kind == Kind::kFail, "the server ends it");
          CheckText(steps.back().status.message(), "sent too many frames");
        } else {
          Check(steps.empty() && server.wants_bytes(), "what a newer client may send is skipped");
        }
        Check(CpuSeconds() - began < 2, "at once");
      }
    }
    for (const bool begun : {false, true}) {
      if (!begun && each != unknown) continue;
      ClientHandshake client(options, 2);
      (void)client.Start(start);
      if (begun) Check(client.Received(Encode(answer), start).size() == 1, "an attempt");
      const double began = CpuSeconds();
      Check(client.Received(few, start).empty() && client.wants_bytes(), "skipped");
      const Steps steps = client.Received(flood, start);
      Check(!steps.empty(), "the client ends it");
      Check(steps.back().kind == (begun ? Kind::kFail : Kind::kReconnect), "its end");
      CheckText(begun ? steps.back().status.message() : steps.back().reason, "too many frames");
      Check(CpuSeconds() - began < 2, "at once");
    }
  }
}

void ByteByByte() {
  // Bytes come in any pieces: both ends fed by single bytes.
  const Instant start{};
  HandshakeOptions options;
  options.fabrics = {{"shm", "x"}};
  ClientHandshake client(options, 2);
  ServerHandshake server(options, [](const Brochure&) { return OkStatus(); });
  (void)server.Start(start);
  const auto feed = [&](auto& machine, const std::string& bytes) {
    Steps all;
    for (const char byte : bytes) {
      Check(machine.wants_bytes(), "it reads on");
      for (Step& step : machine.Received(std::string(1, byte), start))
        all.push_back(std::move(step));
    }
    return all;
  };
  Steps steps = feed(server, client.Start(start)[0].bytes);
  Check(steps.size() == 2, "answer and attach");
  Check(feed(client, steps[0].bytes).back().kind == Kind::kAttach, "attach");
  const std::string ready = client.Attached(1, OkStatus(), start)[0].bytes;
  Check(client.FrameToSend(1, "late", start).empty(), "nothing after the verdict");
  Check(feed(server, ready).empty() && !server.wants_bytes(), "reads no more");
  steps = server.Attached(1, OkStatus(), start);
  Check(steps.size() == 2 && steps[1].kind == Kind::kEstablished, "the server");
  Check(feed(client, steps[0].bytes).back().kind == Kind::kEstablished, "the client");
}

void AFabricWithoutAStream() {
  const Instant start{};
  HandshakeOptions options;
  options.fabrics = {{"map", "x"}};
  options.without_stream = {"map"};
  ClientHandshake client(options, 2);
  (void)client.Start(start);
  Answer answer;
  answer.attempt = 1;
  answer.fabric = "map";
  Check(client.Received(Encode(answer), start).size() == 1, "attaches");
  Check(client.Attached(1, OkStatus(), start).size() == 1, "its verdict");
  Verdict yes;
  yes.attempt = 1;
  yes.established = true;
  const Steps steps = client.Received(Encode(yes) + "SETTINGS", start);
  Check(steps.size() == 1 && steps[0].kind == Kind::kEstablished, "established");
  Check(client.TakeUnread() == "SETTINGS", "and TCP goes on");
}

}  // namespace

int main() {
  ar_grpc::fabric::testing::RunAll(
      "handshake",
      {{"one fabric", OneFabric},
       {"the first that works is taken", TheFirstThatWorksIsTaken},
       {"what does not reach is not tried", WhatDoesNotReachIsNotTried},
       {"no common fabric", NoCommonFabric},
       {"what an end lacks is a reason", WhatAnEndLacksIsAReason},
       {"all fail and TCP goes on", AllFailAndTcpGoesOn},
       {"silent fabrics leave time for TCP", SilentFabricsLeaveTimeForTcp},
       {"eight fabrics", EightFabrics},
       {"forced fabric", ForcedFabric},
       {"plain clients are left alone", PlainClientsAreLeftAlone},
       {"other versions and kinds", OtherVersionsAndKinds},
       {"servers that are none", ServersThatAreNone},
       {"silent servers", SilentServers},
       {"a server of version 1", FirstVersionServer},
       {"a client of version 1", FirstVersionClient},
       {"bytes after the verdict", BytesAfterTheVerdict},
       {"frames that do not fit", FramesThatDoNotFit},
       {"a server that refuses after the client's verdict",
        AServerThatRefusesAfterTheClientsVerdict},
       {"death at every step", DeathAtEveryStep},
       {"silence at every step", SilenceAtEveryStep},
       {"five seconds of standstill at every step", FiveSecondsOfStandstillAtEveryStep},
       {"short standstill ends well", ShortStandstillEndsWell},
       {"every prefix and bit", EveryPrefixAndBit},
       {"floods of frames", FloodsOfFrames},
       {"byte by byte", ByteByByte},
       {"a fabric without a stream", AFabricWithoutAStream}});
}
