// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Every order of what can happen at the two ends of a handshake: frames arrive one by one or all at
// once, either end of the fabric becomes ready, fails, or tells of it too late, and either end runs
// out of time at any moment, just while the other says that they leave TCP, too. Whatever the
// order, both ends go on over the same path, with all bytes that either has written since and no
// others, or the connection is closed and both know.

#include <algorithm>
#include <deque>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/protocol/handshake.h"

namespace {

using namespace ar_grpc;            // NOLINT
using namespace ar_grpc::protocol;  // NOLINT
using ar_grpc::fabric::testing::Check;
using Kind = Step::Kind;

// The first that each end writes once it stays on TCP.
constexpr const char* kFirstBytes[] = {"PRI * HTTP/2.0", "SETTINGS"};
constexpr int kClient = 0;
constexpr int kServer = 1;

struct End {
  std::optional<Kind> kind;  // how its machine ended
  uint32_t attempt = 0;      // of kEstablished
  std::string unread;
  // The attempt whose attachment there is, what it has told, and the last one that was given up
  // before it told anything.
  uint32_t attached = 0;
  bool ready = false;
  bool sent = false;
  bool failed = false;  // after it was ready
  uint32_t late = 0;
  Instant now{};  // no two hosts' clocks go alike: each end's own
};

// Copied at each step, so that each order goes on from here.
struct World {
  ClientHandshake client;
  ServerHandshake server;
  End ends[2];
  std::deque<std::string> wire[2];  // to each end
  std::optional<int> closer;        // who closed TCP
  // What came to each end, in its order: a machine is what came to it, so worlds in which the same
  // came to both ends are the same, whatever came first of what came to different ends.
  std::string past[2];
};

HandshakeOptions Options(int fabrics) {
  HandshakeOptions options;
  for (int i = 0; i < fabrics; ++i) options.fabrics.push_back({"f" + std::to_string(i), ""});
  return options;
}

class Orders {
 public:
  // `common`: how many of the client's fabrics the server has. `may`: what may happen beside what
  // always may, of 's', 'l' and 'd'.
  Orders(int fabrics, int common, const std::string& may) : events_("rRafxc" + may) {
    World first{ClientHandshake(Options(fabrics), kVersion),
                ServerHandshake(Options(common), [](const Brochure&) { return OkStatus(); }),
                {},
                {},
                {},
                {}};
    CarryOut(&first, kServer, first.server.Start(Instant{}));
    CarryOut(&first, kClient, first.client.Start(Instant{}));
    std::vector<World> open = {first};
    while (!open.empty()) {
      const World world = std::move(open.back());
      open.pop_back();
      if (!known_.insert(world.past[kClient] + '|' + world.past[kServer]).second) continue;
      CheckAgreed(world);
      const size_t before = open.size();
      for (const int end : {kClient, kServer}) {
        for (const char event : events_) {
          if (!Possible(world, end, event)) continue;
          open.push_back(world);
          Happens(&open.back(), end, event);
        }
      }
      if (open.size() == before) CheckOver(world);
    }
  }

  size_t worlds() const { return known_.size(); }
  // How often the ends ended so: "client/server", each by the attempt over whose fabric it goes
  // on, `tcp`, `closed` where it closed TCP, and `told` where it learned of that.
  const std::map<std::string, int>& outcomes() const { return outcomes_; }

 private:
  template <typename Tell>
  static auto At(World* world, int end, Tell tell) {
    return end == kClient ? tell(&world->client) : tell(&world->server);
  }
  static bool WantsBytes(const World& world, int end) {
    return end == kClient ? world.client.wants_bytes() : world.server.wants_bytes();
  }
  static Instant Deadline(const World& world, int end) {
    return end == kClient ? world.client.deadline() : world.server.deadline();
  }

  bool Possible(const World& world, int number, char event) const {
    const End& end = world.ends[number];
    if (end.kind) return false;
    const size_t frames = world.wire[number].size();
    const bool attaching = end.attached != 0 && !end.ready;
    switch (event) {
      case 'r':  // a frame arrives
        return frames > 0 && WantsBytes(world, number);
      case 'R':  // all that is on its way arrives at once
        return frames > 1 && WantsBytes(world, number);
      case 's':  // its attachment sends a frame
        return attaching && !end.sent;
      case 'a':  // its attachment is ready
      case 'f':  // its attachment fails
        return attaching;
      case 'd':  // its attachment fails after it was ready: too late to take the word back
        return end.attached != 0 && end.ready && !end.failed;
      case 'l':  // an attachment that was given up says nevertheless that it is ready
        return end.late != 0;
      case 'x':  // its time is over
        return Deadline(world, number) != Instant::max();
      default:  // it sees that the other has closed TCP, perhaps before it has read what came
        return world.closer == 1 - number;
    }
  }

  void Happens(World* world, int number, char event) {
    End& end = world->ends[number];
    world->past[number] += event;
    const auto take = [&] {
      std::string bytes = std::move(world->wire[number].front());
      world->wire[number].pop_front();
      return bytes;
    };
    Steps steps = At(world, number, [&](auto* machine) {
      switch (event) {
        case 'r':
          return machine->Received(take(), end.now);
        case 'R': {
          // How many came is no matter of this end's past alone.
          world->past[number] += std::to_string(world->wire[number].size());
          std::string bytes;
          while (!world->wire[number].empty()) bytes += take();
          return machine->Received(bytes, end.now);
        }
        case 's':
          end.sent = true;
          return machine->FrameToSend(end.attached, "a frame", end.now);
        case 'a':
          end.ready = true;
          return machine->Attached(end.attached, OkStatus(), end.now);
        case 'f':
          return machine->Attached(end.attached, Status(StatusCode::kUnavailable, "as told"),
                                   end.now);
        case 'd':
          end.failed = true;
          return machine->Attached(end.attached, Status(StatusCode::kUnavailable, "too late"),
                                   end.now);
        case 'l':
          return machine->Attached(std::exchange(end.late, 0), OkStatus(), end.now);
        case 'x':
          end.now = std::max(end.now, Deadline(*world, number));
          return machine->Expired(end.now);
        default:
          world->wire[number].clear();
          return machine->Closed(end.now);
      }
    });
    CarryOut(world, number, steps);
  }

  void CarryOut(World* world, int number, const Steps& steps) {
    End& end = world->ends[number];
    for (const Step& step : steps) {
      switch (step.kind) {
        case Kind::kSend:
          if (!world->closer) world->wire[1 - number].push_back(step.bytes);
          break;
        case Kind::kAttach:
          Check(end.attached == 0, "one attachment at a time");
          end.attached = step.attempt;
          end.ready = end.sent = end.failed = false;
          break;
        case Kind::kTakeFrame:
          Check(step.attempt == end.attached, "frames go to an attachment that is there");
          break;
        case Kind::kGiveUp:
          Check(step.attempt == end.attached, "what is given up was there");
          if (!end.ready) end.late = end.attached;
          end.attached = 0;
          break;
        default:
          EndsWith(world, number, step);
      }
    }
  }

  void EndsWith(World* world, int number, const Step& step) {
    End& end = world->ends[number];
    Check(!end.kind, "one end");
    end.kind = step.kind;
    if (step.kind == Kind::kEstablished) {
      end.attempt = step.attempt;
      Check(end.attached == step.attempt && end.ready, "over what is ready");
    } else {
      Check(end.attached == 0, "no attachment is left");
    }
    At(world, number, [&](auto* machine) { end.unread = machine->TakeUnread(); });
    if (step.kind == Kind::kReconnect || step.kind == Kind::kFail) {
      // Neither does anything that the other would have to take for an offence.
      Check(step.status.code() != StatusCode::kInvalidArgument &&
                step.status.message().find("broke the AR-gRPC") == std::string::npos,
            Told(*world) + step.status.message());
      if (!world->closer) world->closer = number;
      world->wire[number].clear();
    } else if (step.kind == Kind::kStayOnTcp) {
      if (!world->closer) world->wire[1 - number].push_back(kFirstBytes[number]);
    } else {
      Check(step.kind == Kind::kEstablished, Told(*world) + "both speak AR-gRPC");
    }
  }

  // At any time: who has left TCP is not left there alone.
  void CheckAgreed(const World& world) const {
    const End& client = world.ends[kClient];
    const End& server = world.ends[kServer];
    if (client.kind == Kind::kEstablished) {
      Check(server.kind == Kind::kEstablished && server.attempt == client.attempt,
            Told(world) + "the client leaves TCP after the server, over the same fabric");
    }
    if (client.kind == Kind::kStayOnTcp) {
      Check(server.kind != Kind::kEstablished, Told(world) + "the client stays alone");
    }
    if (server.kind == Kind::kStayOnTcp) {
      Check(client.kind != Kind::kEstablished, Told(world) + "the server stays alone");
    }
  }

  // When nothing more can happen.
  void CheckOver(const World& world) {
    std::string outcome;
    for (const int number : {kClient, kServer}) {
      const End& end = world.ends[number];
      Check(end.kind.has_value(), Told(world) + "each end ends");
      if (number == kServer) outcome += "/";
      if (world.closer == number) {
        outcome += "closed";
      } else if (*end.kind == Kind::kStayOnTcp) {
        outcome += "tcp";
      } else if (*end.kind == Kind::kEstablished) {
        outcome += std::to_string(end.attempt);
      } else {
        outcome += "told";
      }
      if (world.closer) continue;
      // With what is still on its way.
      std::string comes = end.unread;
      for (const std::string& bytes : world.wire[number]) comes += bytes;
      Check(comes == (*end.kind == Kind::kStayOnTcp ? kFirstBytes[1 - number] : ""),
            Told(world) + "what comes on TCP: " + comes);
    }
    if (!world.closer) {
      Check(world.ends[kClient].kind == world.ends[kServer].kind, Told(world) + outcome);
    }
    ++outcomes_[outcome];
  }

  static std::string Told(const World& world) {
    return "client " + world.past[kClient] + ", server " + world.past[kServer] + ": ";
  }

  const std::string events_;
  std::set<std::string> known_;
  std::map<std::string, int> outcomes_;
};

// `wanted`: that all of these are reached shows that the orders do meet at the switch.
void Explore(int fabrics, int common, const std::string& may, const std::set<std::string>& wanted) {
  const Orders orders(fabrics, common, may);
  std::cout << orders.worlds() << " states";
  for (const auto& [outcome, count] : orders.outcomes())
    std::cout << ", " << outcome << " " << count;
  std::cout << std::endl;
  for (const std::string& outcome : wanted) {
    Check(orders.outcomes().count(outcome) == 1, "some order ends with " + outcome);
  }
}

// `closed/1`: the client's time is over just when the server has said that they leave TCP.
void OneFabric() {
  Explore(1, 1, "sld", {"1/1", "tcp/tcp", "closed/1", "closed/told", "tcp/closed", "told/closed"});
}
void TwoFabrics() {
  // What is told too late makes twenty times as many orders.
  Explore(2, 2, ar_grpc::fabric::testing::kSlowdown == 1 ? "l" : "",
          {"1/1", "2/2", "tcp/tcp", "closed/1", "closed/2", "closed/told"});
}
void NoFabric() { Explore(1, 0, "", {"tcp/tcp", "closed/tcp"}); }

}  // namespace

int main() {
  ar_grpc::fabric::testing::RunAll(
      "handshake orders",
      {{"no fabric", NoFabric}, {"one fabric", OneFabric}, {"two fabrics", TwoFabrics}});
}
