// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A node and what it knows: links, what is offered to whom, servers, and what peers may read.

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/units/transfer_testing.h"

namespace {

using namespace ar_grpc;                     // NOLINT
using namespace ar_grpc::protocol;           // NOLINT
using namespace ar_grpc::protocol::testing;  // NOLINT

Offers::Held HeldInt(std::shared_ptr<int> keep) {
  return {reinterpret_cast<const uint8_t*>(keep.get()), sizeof(int), keep};
}

void LinksOldestFirst() {
  World world(World::Loopback(), 1 << 20);
  Check(!world.server->HasHadLinks() && world.server->LinkReadBy(world.client->id()) == nullptr,
        "no link");
  const Ends tcp = world.ConnectTcp();
  Check(world.server->HasHadLinks() && world.server->LinkReadBy(world.client->id()) == nullptr &&
            world.client->LinkToTell(world.server->id()) == nullptr,
        "nothing moves over TCP");
  const Ends first = world.Connect("one");
  const Ends second = world.Connect("two");
  const NodeId& server = world.server->id();
  const NodeId& client = world.client->id();
  Check(world.server->LinkReadBy(client) == first.server, "the oldest");
  Check(world.client->LinkToTell(server) == first.client, "the oldest");
  Check(world.client->LinkToRead(server, second.client->id()) == second.client, "by its id");
  Check(world.client->LinkToRead(server, NewToken()) == nullptr, "no such id");
  Check(world.client->LinkToRead(client, first.client->id()) == nullptr, "another node's");
  // An end is asked for what it is the end of.
  Check(world.server->LinkToRead(client, first.server->id()) == nullptr &&
            world.server->LinkToTell(client) == nullptr &&
            world.client->LinkReadBy(server) == nullptr,
        "the other end's");
  Check(world.client->Paths().at("server:1").fabric == "two", "the last one wins");
  Check(world.client->Count().links == 3, "links");
  first.server->Close();
  Check(first.client->closed() && world.server->LinkReadBy(client) == second.server &&
            world.client->LinkToTell(server) == second.client &&
            world.client->LinkToRead(server, first.client->id()) == nullptr,
        "a closed one is none");
  world.Disconnect(first);
  world.server->RemoveLink(first.server);  // once more
  world.Disconnect(second);
  world.Disconnect(tcp);
  Check(world.server->Count().links == 0 && world.client->Count().links == 0, "none left");
  Check(world.server->HasHadLinks(), "a call to a peer that comes back asks for an offer");
}

void BytesOfTheStreamAreCounted() {
  World world(World::Loopback(), 1 << 20);
  const Ends ends = world.Connect();
  std::string text = "hello";
  const iovec part = {text.data(), text.size()};
  Check(*ends.client->Write(&part, 1) == 5, "written");
  char into[8];
  Check(*ends.server->connection()->Read(into, sizeof(into)) == 5, "read");
  for (int i = 0; i < 2; ++i) {
    Check(world.client->Count().stream_bytes_sent == 5, "sent");
    Check(world.server->Count().stream_bytes_received == 5, "received");
    if (i == 0) world.Disconnect(ends);
  }
}

void ALinkOfTcp() {
  Link link(Link::Description{}, nullptr);
  CheckCode(link.Write(nullptr, 0).status(), StatusCode::kUnimplemented);
  CheckCode(link.ArmWrite().status(), StatusCode::kUnimplemented);
  CheckOk(link.FlushMessages());
  std::vector<uint64_t> released;
  CheckOk(link.TakeMessages(10, &released));
  Check(!link.PostRelease(1) && !link.can_get() && !link.carries_stream() && !link.closed(),
        "nothing moves over it");
  bool done = false;
  link.Close([&] { done = true; });
  Check(done && link.closed(), "closed");
}

void AnUnknownMessageIsAnError() {
  World world(World::Loopback(), 1 << 20);
  const Ends ends = world.Connect();
  Check(ends.client->PostRelease(7), "a release");
  fabric::Message message;
  message.bytes.fill(0xee);
  Check(*ends.client->connection()->Post(message), "posted");
  std::vector<uint64_t> released;
  CheckCode(ends.server->TakeMessages(10, &released), StatusCode::kInternal, "unknown kind 238");
  Check(released == std::vector<uint64_t>{7}, "what came before it holds");
}

// A memory that a link's end lets go is not read any more by then: the end of Close is waited for.
void LetGoAfterTheLastAccess() {
  constexpr uint64_t kSize = 1 << 20;
  for (const int delay_us : {50000, 50}) {
    fabric::hostile::Options late;
    late.failing_percent = 0;
    late.largest_delay_us = delay_us;
    for (uint64_t round = 1; round <= (delay_us > 1000 ? 1 : 50); ++round) {
      World world(World::Hostile(late));
      const Ends ends = world.Connect();
      const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
      Source source = world.MakeSource(kSize, round, true);
      uint8_t* const bytes = const_cast<uint8_t*>(static_cast<const uint8_t*>(source.buffer.data));
      // The next user of the memory writes to it: to a read that is still under way that is a race.
      const auto offer = world.MakeSender().TryOffer(receiver->ask(), std::move(source.buffer),
                                                     [bytes, released = source.OnReleased()] {
                                                       std::memset(bytes, 0, kSize);
                                                       released();
                                                     });
      Destination to(kSize, true);
      const auto outcome = std::make_shared<Outcome>();
      receiver->Start(*offer, to.target, outcome->Done(outcome));
      world.server->RemoveLink(ends.server);
      Eventually("let go", [&] { return *source.released == 1; });
      if (outcome->Wait().ok()) {
        Check(HasPattern(to.bytes->data(), kSize, round), "the right bytes");
      }
    }
  }
}

void OffersOfManyReceivers() {
  Offers offers;
  NodeId a{};
  NodeId b{};
  b.fill(1);
  const auto tensor = std::make_shared<int>(1);
  Offers::Held replaced;
  Check(!offers.Hold(a, 1, HeldInt(tensor), &replaced), "without a link");
  Check(offers.Release(a, 1).keep == nullptr && offers.RemoveLink(a).empty(), "nobody");
  offers.AddLink(a);
  offers.AddLink(a);
  offers.AddLink(b);
  Check(offers.Hold(a, 1, HeldInt(tensor), &replaced) &&
            offers.Hold(b, 1, HeldInt(tensor), &replaced),
        "held");
  Check(tensor.use_count() == 3 && offers.open() == 2, "held for both");
  Check(offers.Hold(a, 1, HeldInt(tensor), &replaced) && replaced.keep != nullptr, "replaced");
  replaced = {};
  Check(!offers.Find(a, 2) && offers.Find(a, 1)->data != nullptr, "found");
  Check(offers.Release(b, 1).keep != nullptr && !offers.Find(b, 1) && offers.Find(a, 1),
        "b's alone");
  Check(offers.RemoveLink(a).empty() && offers.open() == 1, "a has another link");
  Check(offers.RemoveLink(a).size() == 1, "let go");
  Check(tensor.use_count() == 1, "and free");
  // A receiver that comes again is another: what it revoked is forgotten with its links.
  offers.AddLink(a);
  Check(offers.Hold(a, 1, HeldInt(tensor), &replaced), "held again");
  Check(offers.RemoveLink(a).size() == 1, "let go");
}

// A receiver that asks and never releases: its table is bounded, and others' are not touched.
void OffersAreBounded() {
  Offers offers;
  NodeId greedy{};
  NodeId other{};
  other.fill(1);
  offers.AddLink(greedy);
  offers.AddLink(other);
  const auto tensor = std::make_shared<int>(1);
  Offers::Held replaced;
  for (uint64_t ticket = 0; ticket < Offers::kMostHeld; ++ticket) {
    Check(offers.Hold(greedy, ticket, HeldInt(tensor), &replaced), "held");
  }
  const uint64_t next = Offers::kMostHeld;
  Check(!offers.Hold(greedy, next, HeldInt(tensor), &replaced), "one too many");
  Check(offers.open() == Offers::kMostHeld && !offers.Find(greedy, next), "nothing is held");
  Check(tensor.use_count() == static_cast<long>(Offers::kMostHeld) + 1, "nor kept");
  Check(offers.Hold(greedy, 7, HeldInt(tensor), &replaced) && replaced.keep != nullptr,
        "another try of a call that is held");
  replaced = {};
  Check(offers.Hold(other, next, HeldInt(tensor), &replaced), "another receiver's");
  Check(offers.Release(greedy, 9).keep != nullptr, "released");
  Check(offers.Hold(greedy, next, HeldInt(tensor), &replaced), "there is room again");
  Check(offers.RemoveLink(greedy).size() == Offers::kMostHeld, "all go with the last link");
}

// As many tickets are revoked as are remembered, and more: no step takes longer for it.
void RevokedTicketsTakeConstantTime() {
  constexpr uint64_t kSteps = 200;
  constexpr uint64_t kFew = 10;
  const NodeId node{};
  const auto tensor = std::make_shared<int>(1);
  uint64_t next = 0;
  const auto take = [&](Offers& offers, uint64_t steps) {
    for (uint64_t i = 0; i < steps; ++i) {
      Offers::Held replaced;
      Check(offers.Hold(node, ++next, HeldInt(tensor), &replaced), "held");
      Check(offers.Release(node, next).keep != nullptr, "released");
      Check(!offers.Hold(node, next, HeldInt(tensor), &replaced), "late");
    }
  };
  const auto best_of_five = [](const std::function<void()>& run) {
    double best = 1e9;
    for (int attempt = 0; attempt < 5; ++attempt) {
      const auto start = std::chrono::steady_clock::now();
      run();
      best = std::min(
          best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  };
  const double few = best_of_five([&] {
    for (uint64_t i = 0; i < kSteps / kFew; ++i) {
      Offers fresh;
      fresh.AddLink(node);
      take(fresh, kFew);
    }
  });
  Offers offers;
  offers.AddLink(node);
  for (uint64_t i = 0; i < 4 * Offers::kRevokedKept; ++i) (void)offers.Release(node, ++next);
  const double many = best_of_five([&] { take(offers, kSteps); });
  Check(many < 5 * few, "constant time: " + std::to_string(many / few) + " times as long");
  // The oldest are forgotten, the last ones are not.
  Offers::Held replaced;
  Check(offers.Hold(node, 1, HeldInt(tensor), &replaced), "forgotten");
  for (uint64_t i = 0; i < Offers::kRevokedKept; ++i) {
    Check(!offers.Hold(node, next - i, HeldInt(tensor), &replaced), "remembered");
  }
}

void ServersAreRememberedForAMinute() {
  ServerMemory memory;
  const ServerMemory::Clock::time_point now{};
  Check(!memory.VersionOf("a:1", now), "unknown");
  memory.RememberVersion("a:1", 0, now);
  memory.RememberVersion("b:1", 1, now);
  Check(memory.VersionOf("a:1", now) == 0 && memory.VersionOf("b:1", now) == 1, "known");
  memory.RememberVersion("a:1", 2, now + std::chrono::seconds(30));
  Check(memory.VersionOf("a:1", now + std::chrono::seconds(61)) == 2, "renewed");
  Check(!memory.VersionOf("b:1", now + std::chrono::seconds(60)), "forgotten");
  NodeId node{};
  for (size_t i = 0; i < ServerMemory::kMost + 10; ++i) {
    memory.RememberVersion(std::to_string(i), 1, now + std::chrono::milliseconds(i));
    node[0] = static_cast<uint8_t>(i);
    memory.RememberSender(std::to_string(i), node);
  }
  const std::string last = std::to_string(ServerMemory::kMost + 9);
  Check(!memory.VersionOf("0", now) && memory.VersionOf(last, now) == 1, "the oldest goes");
  Check(!memory.SenderOf("0") && memory.SenderOf(last) == node, "the oldest goes");
}

// Each time the next try fails, twice as late; side by side, or after a fabric was had, not.
void ClientsWithoutAFabricAreTriedLessAndLess() {
  using std::chrono::seconds;
  ClientMemory memory;
  const std::string client = ClientMemory::NameOf(NodeId{1});
  const std::string other = "ipv4:10.0.0.1";
  ClientMemory::Clock::time_point now{};
  int64_t expected = 10;
  for (int i = 0; i < 8; ++i) {
    const ClientMemory::Age age = memory.AgeOnTcp(client, now);
    Check(age == seconds(expected), "try " + std::to_string(i));
    // Another channel of the client's, which failed at the same time, or a little later.
    Check(memory.AgeOnTcp(client, now) == age, "beside it");
    Check(memory.AgeOnTcp(client, now + age * 8 / 10) == age, "beside it, later");
    expected = std::min<int64_t>(2 * expected, 600);
    now += age * 95 / 100 + seconds(1);
  }
  Check(expected == 600, "no longer than that");
  Check(memory.AgeOnTcp(other, now) == seconds(10), "another client");
  Check(memory.AgeOnTcp(other, now + seconds(300)) == seconds(20), "one that seldom calls");
  Check(memory.AgeOnTcp(other, now + seconds(300 + 1800)) == seconds(10), "much later");
  memory.Forget(client);
  Check(memory.AgeOnTcp(client, now) == seconds(10), "after a fabric");
  NodeId many{};
  for (size_t i = 0; i < ClientMemory::kMost; ++i) {
    std::memcpy(many.data(), &i, sizeof(i));
    many[15] = 9;
    memory.AgeOnTcp(ClientMemory::NameOf(many), now + seconds(1) + std::chrono::milliseconds(i));
  }
  // `client` is the oldest, and gone: else this were its second try.
  Check(memory.AgeOnTcp(client, now + seconds(15)) == seconds(10), "the oldest goes");
}

void HellosThatWereFoundTooLate() {
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  LateHellos hellos;
  const LateHellos::Clock::time_point now{};
  const std::string host = HostOf("ipv4:10.0.0.1:2222");
  Check(host == "ipv4:10.0.0.1" && HostOf("ipv6:[::1]:80") == "ipv6:[::1]", "hosts");
  Check(HostOf("ipv4:10.0.0.1:3333") == host, "whatever the port");
  Check(!hellos.TakeOne(host, now), "none");
  hellos.Found(host, now);
  hellos.Found(host, now + seconds(5));
  Check(!hellos.TakeOne("ipv4:10.0.0.2", now + seconds(5)), "from another host");
  Check(hellos.TakeOne(host, now + seconds(5)) && hellos.TakeOne(host, now + seconds(24)), "both");
  Check(!hellos.TakeOne(host, now + seconds(24)), "and no more");
  hellos.Found(host, now);
  hellos.Found(host, now);
  Check(!hellos.TakeOne(host, now + seconds(20)), "that was long ago");
  Check(!hellos.TakeOne(host, now), "they are forgotten");
  for (size_t i = 0; i <= LateHellos::kMost; ++i) {
    hellos.Found(std::to_string(i), now + milliseconds(i));
  }
  Check(!hellos.TakeOne("0", now + seconds(9)), "the oldest is forgotten");
  Check(hellos.TakeOne("1", now + seconds(9)), "and no other");
}

void AHelloThatNobodyHasRead() {
  using std::chrono::milliseconds;
  const auto holds = [](const std::string& bytes, milliseconds wait, milliseconds deadline) {
    const fabric::testing::LoopbackTcp tcp;
    Check(
        send(tcp.client.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
        "sent");
    shutdown(tcp.client.get(), SHUT_WR);  // as a client that has given up
    std::this_thread::sleep_for(wait);
    const bool late = HoldsLateHello(tcp.server.get(), deadline);
    std::string left(bytes.size() + 1, 0);
    Check(recv(tcp.server.get(), left.data(), left.size(), MSG_WAITALL) ==
              static_cast<ssize_t>(bytes.size()),
          "all is still there");
    return late;
  };
  const std::string hello = Encode(Hello{});
  Check(holds(hello, milliseconds(300), milliseconds(300)), "a late one");
  Check(!holds(hello, milliseconds(0), milliseconds(60000)), "one in time");
  Check(!holds("PRI * HTTP/2.0\r\n", milliseconds(300), milliseconds(300)), "no hello");
  Check(!holds("AR-g", milliseconds(300), milliseconds(300)), "not yet");
  Check(!HoldsLateHello(-1, milliseconds(0)), "no connection");
}

void NodesOfTheProcess() {
  const size_t before = AllNodes().size();
  auto one = Node::Create({{"shm", "tcp"}, nullptr, nullptr});
  const auto two = Node::Create({{}, nullptr, nullptr});
  Check(one->id() != two->id() && AllNodes().size() == before + 2, "two more");
  Check(one->Allows("tcp") && !one->Allows("verbs") && !two->Allows("tcp"), "what is allowed");
  one.reset();
  Check(AllNodes().size() == before + 1, "one less");
}

// Two clusters in one process: what one node offers, remembers or counts is not another's.
void TwoClusters() {
  World first(World::Loopback(), 1 << 20);
  World second(World::Loopback(), 1 << 20);
  first.Connect();
  second.Connect();
  const auto transfer = [&](World* world) {
    const uint64_t seed = world == &first;
    const std::shared_ptr<Receiver> receiver = world->MakeReceiver();
    Source source = world->MakeSource(20000, seed, true);
    const auto offer = world->MakeSender().TryOffer(receiver->ask(), source.buffer, nullptr);
    Destination to(20000, false);
    const auto outcome = std::make_shared<Outcome>();
    receiver->Start(*offer, to.target, outcome->Done(outcome));
    CheckOk(outcome->Wait());
    Check(HasPattern(to.bytes->data(), 20000, seed), "its own bytes");
  };
  std::vector<std::thread> threads;
  for (World* const world : {&first, &second}) {
    threads.emplace_back([&, world] {
      for (int i = 0; i < 19; ++i) transfer(world);
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The last word is the second one's: the first must not have heard it.
  transfer(&first);
  transfer(&second);
  for (World* const world : {&first, &second}) {
    Check(world->client->Count().rendezvous == 20 && world->server->Count().rendezvous == 0,
          "its own");
    Check(world->server->Count().offers_open == 20, "its own offers");
  }
  // Another cluster's receiver is nobody here, nor is its sender.
  const std::shared_ptr<Receiver> stranger = second.MakeReceiver();
  Source source = first.MakeSource(5000, 1, true);
  Check(!first.MakeSender().TryOffer(stranger->ask(), source.buffer, nullptr), "no link");
  Check(!first.client->servers().SenderOf("/job:other") &&
            first.client->servers().SenderOf("/job:ps") == first.server->id(),
        "its own server");
}

// A node that knows several: each peer's tickets are its own.
void TwoReceiversOfOneSender() {
  World world(World::Loopback(), 1 << 20);
  world.Connect();
  const auto other = Node::Create({{"test"}, nullptr, nullptr});
  auto pair = fabric::testing::Attach(*world.server_context, *world.client_context);
  const LinkId id = NewToken();
  auto link =
      std::make_shared<Link>(Link::Description{End::kServer, other->id(), "other:1", "test", id, 0},
                             std::move(pair.acceptor));
  world.server->AddLink(link);
  const std::shared_ptr<Receiver> receiver = world.MakeReceiver();
  Source mine = world.MakeSource(5000, 1, true);
  Source theirs = world.MakeSource(5000, 2, true);
  Sender sender = world.MakeSender();
  Check(sender.TryOffer(receiver->ask(), mine.buffer, mine.OnReleased()).has_value(), "an offer");
  const auto offer =
      sender.TryOffer({other->id(), receiver->ask().ticket}, theirs.buffer, theirs.OnReleased());
  Check(offer->readable->link == id, "over its own link");
  world.server->RemoveLink(link);
  Check(*mine.released == 0 && *theirs.released == 1, "only the other's is let go");
}

void WhatPeersMayRead() {
  World world(World::Loopback(), 1 << 20);
  const Ends ends = world.Connect();
  const Ends tcp = world.ConnectTcp();
  Exports& exports = *world.exports;
  const uint8_t* const data = world.segment->data();
  Check(exports.Contains(data, 1 << 20) && !exports.Contains(data, (1 << 20) + 4096), "within");
  int outside = 0;
  CheckCode(exports.Export(*ends.server, &outside, 4).status(), StatusCode::kNotFound);
  CheckCode(exports.Export(*tcp.server, data, 4).status(), StatusCode::kUnimplemented);
  const auto one = Value(exports.Export(*ends.server, data + 100, 4));
  const auto again = Value(exports.Export(*ends.server, data + 200, 4));
  Check(one.offset == 100 && again.offset == 200 && one.key == again.key, "one registration");
  Check(!one.key.empty() && one.key.size() <= fabric::kLargestKey, "a key");
  world.server->RemoveLink(ends.server);
  CheckCode(exports.Export(*ends.server, data, 4).status(), StatusCode::kUnavailable);
}

// A server's end over TCP that is retired after a while.
std::shared_ptr<Link> RetiringLink(const NodeId& peer) {
  Link::Description description;
  description.end = End::kServer;
  description.peer = peer;
  description.fabric = "tcp";
  description.retires_after = std::chrono::seconds(10);
  return std::make_shared<Link>(std::move(description), nullptr);
}

void OffersOutliveARetiredConnection() {
  World world(World::Loopback(), 1 << 20);
  Node& server = *world.server;
  const NodeId peer = NewToken();
  const auto hold = [&] {
    Offers::Held replaced;
    Check(server.offers().Hold(peer, 1, HeldInt(std::make_shared<int>(1)), &replaced), "held");
  };
  const std::shared_ptr<Link> first = RetiringLink(peer);
  server.AddLink(first);
  hold();
  server.LinkRetired(first);
  Check(first->closed() && server.offers().Find(peer, 1).has_value(), "the peer comes back");
  // The connection of this process to the peer is not the peer's.
  Link::Description own;
  own.end = End::kClient;
  own.peer = peer;
  const auto to_peer = std::make_shared<Link>(own, nullptr);
  server.AddLink(to_peer);
  Check(server.offers().Find(peer, 1).has_value(), "it is not back yet");
  server.RemoveLink(to_peer);
  // Another peer's connection is none of its.
  const std::shared_ptr<Link> stranger = RetiringLink(NewToken());
  server.AddLink(stranger);
  Check(server.Count().links == 1, "a retired one does not count");

  const std::shared_ptr<Link> second = RetiringLink(peer);
  server.AddLink(second);
  Check(server.Count().links == 2 && server.offers().Find(peer, 1).has_value(),
        "it took the first one's place");
  server.RemoveLink(first);  // as it would have, had the peer stayed away
  Check(server.offers().Find(peer, 1).has_value(), "what has gone does not go twice");

  // The peer may come back before the old connection has ended.
  const std::shared_ptr<Link> third = RetiringLink(peer);
  server.AddLink(third);
  server.LinkRetired(second);
  Check(server.Count().links == 2 && server.offers().Find(peer, 1).has_value(), "it is back");

  server.LinkRetired(third);
  server.RemoveLink(third);
  Check(!server.offers().Find(peer, 1).has_value() && server.Count().offers_open == 0,
        "it stayed away");
  server.RemoveLink(stranger);
  Check(server.Count().links == 0, "none left");
}

// The client's side of it: what it could not tell waits for the next connection.
void ReleasesOutliveARetiredConnection() {
  World world(World::Loopback(), 1 << 20);
  const NodeId& server = world.server->id();
  const Ends retired = world.ConnectTcp();
  world.client->KeepUntold(server, {7, 8, 9});
  world.Disconnect(retired);
  world.ConnectTcp();
  Check(world.client->TakeUntold(server, 2) == std::vector<uint64_t>{7, 8}, "the first ones");
  Check(world.client->TakeUntold(server, 2) == std::vector<uint64_t>{9}, "the last one");
  Check(world.client->TakeUntold(server, 2).empty(), "once");
}

}  // namespace

int main() {
  fabric::testing::RunAll("node", {
                                      {"links", LinksOldestFirst},
                                      {"counted bytes", BytesOfTheStreamAreCounted},
                                      {"a link of tcp", ALinkOfTcp},
                                      {"an unknown message", AnUnknownMessageIsAnError},
                                      {"after the last access", LetGoAfterTheLastAccess},
                                      {"offers", OffersOfManyReceivers},
                                      {"bounded offers", OffersAreBounded},
                                      {"revoked tickets", RevokedTicketsTakeConstantTime},
                                      {"servers", ServersAreRememberedForAMinute},
                                      {"clients", ClientsWithoutAFabricAreTriedLessAndLess},
                                      {"late hellos", HellosThatWereFoundTooLate},
                                      {"a late hello", AHelloThatNobodyHasRead},
                                      {"all nodes", NodesOfTheProcess},
                                      {"retired", OffersOutliveARetiredConnection},
                                      {"untold", ReleasesOutliveARetiredConnection},
                                      {"two clusters", TwoClusters},
                                      {"two receivers", TwoReceiversOfOneSender},
                                      {"exports", WhatPeersMayRead},
                                  });
  return 0;
}
