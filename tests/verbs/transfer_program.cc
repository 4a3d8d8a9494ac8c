// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// One of two processes, in two hosts, between which verbs reads memory:
//   transfer_program owner PORT BYTES
//   transfer_program reader HOST PORT BYTES CASE
// Attach frames and the key travel over TCP. The reader prints lines "name value".

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/verbs/two_hosts.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"
#include "third_party/ar_grpc/protocol/node.h"
#include "third_party/ar_grpc/protocol/receiver.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr uint8_t kFill = 0xee;
constexpr int kReads = 8;

int Own(const char* port, size_t size) {
  const auto segment = Value(memory::Segment::Create(size));
  for (size_t i = 0; i < size; ++i) segment->data()[i] = ByteAt(i);
  const auto registration = Value(Get().Register(segment, 0, size, Access::kRead));
  Socket socket = Accepted(port);
  CheckCode(Get().Reaches(socket.Receive()), StatusCode::kOk);
  socket.Send(Value(Get().Brochure()));
  End end;
  const auto attachment = Value(Get().Accept(end.events()));
  socket.Send(*end.NextFrame());
  attachment->TakeFrame(socket.Receive());
  socket.Send(*end.NextFrame());
  const auto connection = Value(end.Take());
  socket.Send(Value(connection->Export(registration)));
  socket.Receive();  // that the reader has done
  CloseNow(*connection);
  socket.Linger();
  return 0;
}

void ReadAll(Connection& connection, const Key& key, uint8_t* into, size_t size) {
  const auto before = Counters();
  const auto begin = std::chrono::steady_clock::now();
  CheckCode(GetNow(connection, key, 0, into, size), StatusCode::kOk);
  Say("seconds", Seconds(begin));
  Say("get_bytes", connection.get_bytes());
  for (const auto& [name, value] : Counters()) Say(name, value - before.at(name));
  uint64_t wrong = 0;
  for (size_t i = 0; i < size; ++i) wrong += into[i] != ByteAt(i);
  Say("wrong", wrong);
}

// Closes while it reads over a link that is late or has lost all, takes the memory for something
// else, and sees whether anything still arrives.
void CloseEarly(Connection& connection, const Key& key, uint8_t* into, size_t size, bool lose) {
  // The last of many: it is not over when the first bytes are there.
  Awaited<Status> ended;
  for (int i = 1; i < kReads; ++i) {
    connection.Get(key, 0, into, size, nullptr, [](Status) {});
  }
  connection.Get(key, 0, into, size, nullptr, [&ended](Status status) { ended.Set(status); });
  // Some of it has come, and much is on its way.
  const auto begin = std::chrono::steady_clock::now();
  while (connection.get_bytes() == 0) {
    Check(Seconds(begin) < 30, "nothing was read");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (lose) Impair("loss 100%");
  const auto closing = std::chrono::steady_clock::now();
  CloseNow(connection);
  Say("close_seconds", Seconds(closing));
  Check(ended.Ready(), "closed before the read had ended");
  Say("status", ended.Get().message());
  Say("get_bytes", connection.get_bytes());
  std::memset(into, kFill, size);
  if (lose) Impair("loss 0%");
  std::this_thread::sleep_for(std::chrono::seconds(3));
  Say("late", static_cast<uint64_t>(size - std::count(into, into + size, kFill)));
}

// Nobody answers any more.
void LoseAll(Connection& connection, const Key& key, uint8_t* into, size_t size) {
  Impair("loss 100%");
  const auto begin = std::chrono::steady_clock::now();
  Say("status", GetNow(connection, key, 0, into, size).message());
  Say("seconds", Seconds(begin));
  Say("closed", connection.closed());
  Impair("loss 0%");
}

// Likewise, and nobody waits for what was sent: no completion of it is asked for.
void LoseAFrame(Connection& connection) {
  Impair("loss 100%");
  const auto begin = std::chrono::steady_clock::now();
  char words[] = "nobody hears this";
  const iovec part = {words, sizeof(words)};
  Check(Value(connection.Write(&part, 1)) == sizeof(words), "room for it");
  while (!connection.closed()) {
    Check(Seconds(begin) < 30, "the end does not hear of it");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Say("seconds", Seconds(begin));
  Say("status", connection.Readable().status().message());
  Impair("loss 0%");
}

// For a transfer that calls nobody.
class NoCalls final : public protocol::ChunkCaller {
 public:
  std::function<void()> Start(const protocol::ChunkRequest&, Target, int64_t,
                              std::function<void(Status)> done) override {
    done(Status(StatusCode::kUnavailable, "a call"));
    return [] {};
  }
  void Release(const protocol::ChunkRequest&, std::function<void()>) override {}
};

// A transfer is cancelled while all is lost, its memory is taken for something else, and the link
// is whole again before the device gives up: what was lost is sent again then.
void CancelATransfer(std::unique_ptr<Connection> reading, const Key& key, size_t size) {
  const Connection& connection = *reading;
  const auto node = protocol::Node::Create({{"verbs"}, nullptr, nullptr});
  const protocol::NodeId server{1};
  const protocol::LinkId id = NewToken();
  const auto link = std::make_shared<protocol::Link>(
      protocol::Link::Description{protocol::End::kClient, server, "server:1", "verbs", id,
                                  protocol::kFeatures},
      std::move(reading));
  node->AddLink(link);
  protocol::Receiver::Options options;
  options.node = node;
  options.caller = std::make_shared<NoCalls>();
  const auto receiver = protocol::Receiver::Create(std::move(options));
  std::vector<uint8_t> into(size);
  Awaited<Status> ended;
  receiver->Start({server, receiver->ask().ticket, size, protocol::Offer::Readable{id, key, 0}},
                  {into.data(), size, nullptr}, [&ended](Status status) { ended.Set(status); });
  const auto begin = std::chrono::steady_clock::now();
  while (connection.get_bytes() == 0) {
    Check(Seconds(begin) < 30, "nothing was read");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Impair("loss 100%");
  Check(!ended.Ready(), "read before the link was cut");
  const auto cancelling = std::chrono::steady_clock::now();
  receiver->Cancel();
  Say("cancel_seconds", Seconds(cancelling));
  std::fill(into.begin(), into.end(), kFill);
  Impair("loss 0%");
  Say("status", ended.Get().message());
  std::this_thread::sleep_for(std::chrono::seconds(1));
  Say("late", static_cast<uint64_t>(size - std::count(into.begin(), into.end(), kFill)));
  Say("closed", connection.closed());
  Say("get_bytes", connection.get_bytes());
  node->RemoveLink(link);
}

int ReadFrom(const char* host, const char* port, size_t size, const std::string& name) {
  const auto segment = Value(memory::Segment::Create(size));
  const auto registration = Value(Get().Register(segment, 0, size, Access::kRead));
  Socket socket = Connected(host, port);
  socket.Send(Value(Get().Brochure()));
  CheckCode(Get().Reaches(socket.Receive()), StatusCode::kOk);
  End end;
  const auto attachment = Value(Get().Connect(end.events()));
  attachment->TakeFrame(socket.Receive());
  socket.Send(*end.NextFrame());
  attachment->TakeFrame(socket.Receive());
  auto connection = Value(end.Take());
  const Key key = socket.Receive();
  if (name == "cancel") {
    CancelATransfer(std::move(connection), key, size);
    socket.Send("done");
    socket.Flush();
    return 0;
  }
  if (name == "read") ReadAll(*connection, key, segment->data(), size);
  if (name == "close-late") CloseEarly(*connection, key, segment->data(), size, false);
  if (name == "close-lost") CloseEarly(*connection, key, segment->data(), size, true);
  if (name == "lost-frame") LoseAFrame(*connection);
  if (name == "lost") LoseAll(*connection, key, segment->data(), size);
  CloseNow(*connection);
  socket.Send("done");
  socket.Flush();
  return 0;
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "owner" && argc == 4) return Own(argv[2], std::strtoull(argv[3], nullptr, 10));
  if (role == "reader" && argc == 6) {
    return ReadFrom(argv[2], argv[3], std::strtoull(argv[4], nullptr, 10), argv[5]);
  }
  std::fprintf(stderr, "transfer_program owner PORT BYTES | reader HOST PORT BYTES CASE\n");
  return 2;
}
