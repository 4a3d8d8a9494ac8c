// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// One of two processes, of one host or of two, of which the other one dies:
//   dying_program survivor PORT END POINT
//   dying_program victim HOST PORT END POINT
// END is the survivor's end of the attachment, `server` or `client`; POINT is where the victim ends
// itself with SIGKILL, or `silent`: it does nothing any more, and whoever runs its host ends that.
// The survivor does with the fabric what gRPC's endpoint does. Both print lines "name value"; times
// of the same host can be compared.

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/verbs/own_pair.h"
#include "tests/verbs/two_hosts.h"
#include "third_party/ar_grpc/base/keep_alive.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr size_t kBytes = size_t{4} << 20;
constexpr int kReads = 32;
// Longer than keep-alive takes.
constexpr int kWaitMs = 60000;

// What the victim's life is made of, in order; it ends right after one of them.
constexpr const char* kMet = "met";            // the brochures are exchanged
constexpr const char* kBegan = "began";        // its attachment is made, and a server's hello sent
constexpr const char* kAnswered = "answered";  // it has taken the survivor's hello
constexpr const char* kMade = "made";          // its end of the connection is there
constexpr const char* kReading = "reading";    // it reads the survivor's memory
constexpr const char* kRead = "read";          // the survivor reads its memory
constexpr const char* kStreaming = "streaming";  // the survivor writes into the stream
constexpr const char* kSilent = "silent";

// Seconds of a clock that all processes of a host share.
double Now() { return Seconds(std::chrono::steady_clock::time_point()); }

// --- the victim ---

class Victim {
 public:
  Victim(Socket socket, std::string point) : socket_(std::move(socket)), point_(std::move(point)) {}

  [[noreturn]] void Live(bool server) {
    const Memory memory(kBytes);
    socket_.Send(Value(Get().Brochure()));
    CheckCode(Get().Reaches(socket_.Receive()), StatusCode::kOk);
    EndAt(kMet);
    End end;
    const auto attachment =
        Value(server ? Get().Accept(end.events()) : Get().Connect(end.events()));
    if (server) socket_.Send(*end.NextFrame());
    EndAt(kBegan);
    attachment->TakeFrame(socket_.Receive());
    if (!server) socket_.Send(*end.NextFrame());
    EndAt(kAnswered);
    if (server) {
      socket_.Send(*end.NextFrame());
    } else {
      attachment->TakeFrame(socket_.Receive());
    }
    const auto connection = Value(end.Take());
    socket_.Send(Value(connection->Export(memory.registration)));
    const Key key = socket_.Receive();
    EndAt(kMade);
    if (point_ == kReading) Read(*connection, key);
    if (point_ == kSilent) socket_.Send("silent");
    // The survivor says when it is in the middle.
    if (point_ == kRead || point_ == kStreaming) socket_.Receive();
    EndAt(point_ == kSilent ? "" : point_);
    for (;;) pause();
  }

 private:
  void EndAt(const std::string& point) {
    if (point != point_) return;
    Say("killed_at", Now());
    kill(getpid(), SIGKILL);
  }
  void Read(Connection& connection, const Key& key) {
    static std::vector<uint8_t> into(kBytes);
    for (int i = 0; i < kReads; ++i) {
      connection.Get(key, 0, into.data(), kBytes, nullptr, [](Status) {});
    }
    while (connection.get_bytes() == 0) std::this_thread::yield();
  }

  Socket socket_;
  const std::string point_;
};

// --- the survivor ---

// Two ends in this process: all that a process makes once is made then, and all works.
void PairWithItself(const Memory& memory) {
  const auto [reader, owner] = Connected();
  std::vector<uint8_t> into(kBytes);
  const Key key = Value(owner->Export(memory.registration));
  CheckCode(GetNow(*reader, key, 0, into.data(), kBytes), StatusCode::kOk);
  Check(std::memcmp(into.data(), memory.segment->data(), kBytes) == 0, "wrong bytes");
  CloseNow(*reader);
  CloseNow(*owner);
}

class Survivor {
 public:
  Survivor(Socket socket, std::string point)
      : socket_(std::move(socket)), point_(std::move(point)) {}

  // Goes on until TCP ends, as it will.
  void Live(bool server, const Memory& memory) {
    Attach(server);
    if (connection_ == nullptr) return;
    if (!Send(Value(connection_->Export(memory.registration)))) return;
    const std::optional<Key> key = Receive();
    if (!key.has_value()) return;
    if (point_ == kRead) return ReadFrom(*key);
    if (point_ == kStreaming) return Write();
    if (point_ == kSilent && Receive().has_value()) return Wait();
    Receive();
  }

  // After that: what the endpoint does at the end of TCP.
  void End() {
    HearOfTheEnd();
    Say("heard_at", heard_at_);
    Say("tcp", ended_ == 0 ? "closed" : std::strerror(ended_));
    Say("made", static_cast<int>(connection_ != nullptr));
    const auto begin = std::chrono::steady_clock::now();
    attachment_.reset();
    if (connection_) CloseNow(*connection_);
    if (reader_.joinable()) {
      Say("read", read_.Get().message());
      reader_.join();
    }
    if (connection_) {
      uint8_t byte = 0;
      Say("after", connection_->Read(&byte, 1).status().message());
    }
    connection_.reset();
    Say("close_seconds", Seconds(begin));
  }

 private:
  void Attach(bool server) {
    const std::optional<std::string> brochure = Receive();
    if (!brochure.has_value()) return;
    CheckCode(Get().Reaches(*brochure), StatusCode::kOk);
    if (!Send(Value(Get().Brochure()))) return;
    attachment_ = Value(server ? Get().Accept(end_.events()) : Get().Connect(end_.events()));
    if (server && !Send(*end_.NextFrame())) return;
    const std::optional<std::string> hello = Receive();
    if (!hello.has_value()) return;
    attachment_->TakeFrame(*hello);
    if (const auto frame = end_.NextFrame(); !frame.has_value() || !Send(*frame)) return;
    if (!server) {
      const std::optional<std::string> ready = Receive();
      if (!ready.has_value()) return;
      attachment_->TakeFrame(*ready);
    }
    if (IsMade()) connection_ = Value(end_.Take());
  }

  // What the victim's device was told before its death may still come when TCP has ended.
  bool IsMade() {
    pollfd polled = {socket_.fd(), POLLRDHUP, 0};
    while (!end_.made() && poll(&polled, 1, 1) == 0) {
    }
    if (polled.revents != 0) HearOfTheEnd();
    const auto begin = std::chrono::steady_clock::now();
    while (!end_.made() && Seconds(begin) < 1) poll(nullptr, 0, 1);
    if (!end_.made()) Receive();
    return end_.made();
  }

  // One after the other until one fails.
  void ReadFrom(const Key& key) {
    reader_ = std::thread([this, key] {
      std::vector<uint8_t> into(kBytes);
      Status status;
      while (status.ok()) status = GetNow(*connection_, key, 0, into.data(), kBytes);
      read_.Set(status);
    });
    while (connection_->get_bytes() == 0) std::this_thread::yield();
    Send("now");
    Receive();
    Say("read_at_end", static_cast<int>(read_.Ready()));
  }

  void Write() {
    const std::vector<uint8_t> bytes(kBytes);
    const iovec part = {const_cast<uint8_t*>(bytes.data()), bytes.size()};
    size_t sent = 0;
    while (true) {
      const size_t wrote = Value(connection_->Write(&part, 1));
      sent += wrote;
      if (wrote == 0) break;
    }
    Say("sent", sent);
    Check(Value(connection_->ArmWrite()), "there is room in a stream that nobody reads");
    Send("now");
    Receive();
  }

  void Wait() {
    Check(Value(connection_->ArmRead()), "there is something to read");
    std::printf("waiting\n");
    std::fflush(stdout);
    const auto begin = std::chrono::steady_clock::now();
    pollfd polled[2] = {{socket_.fd(), POLLIN, 0}, {connection_->wake_fd(), POLLIN, 0}};
    const int count = poll(polled, 2, kWaitMs);
    Say("waited_seconds", Seconds(begin));
    Say("heard_of", count == 0 ? "nothing" : polled[0].revents != 0 ? "tcp" : "fabric");
    if (count > 0) Receive();
  }

  bool Send(const std::string& frame) {
    if (socket_.SendOrEnd(frame)) return true;
    ended_ = errno;
    HearOfTheEnd();
    return false;
  }
  std::optional<std::string> Receive() {
    std::optional<std::string> frame = socket_.ReceiveOrEnd();
    if (frame.has_value()) return frame;
    ended_ = errno;
    HearOfTheEnd();
    return frame;
  }
  void HearOfTheEnd() {
    if (heard_at_ == 0) heard_at_ = Now();
  }

  Socket socket_;
  const std::string point_;
  verbs::testing::End end_;
  std::unique_ptr<Attachment> attachment_;
  std::unique_ptr<Connection> connection_;
  Awaited<Status> read_;
  std::thread reader_;
  int ended_ = 0;
  double heard_at_ = 0;  // when TCP's end was first seen, or that of the attachment
};

int Survive(const char* port, bool server, const std::string& point, bool keep_alive) {
  const Memory memory(kBytes);
  PairWithItself(memory);
  const Holdings before = AtRest();
  Socket socket = Accepted(port);
  if (keep_alive) CheckCode(KeepAlive(socket.fd()), StatusCode::kOk);
  auto begin = std::chrono::steady_clock::now();
  {
    Survivor survivor(std::move(socket), point);
    survivor.Live(server, memory);
    begin = std::chrono::steady_clock::now();
    survivor.End();
  }
  UntilNothingIsLeftBut(before);
  Say("quiet_seconds", Seconds(begin));
  PairWithItself(memory);
  UntilNothingIsLeftBut(before);
  Say("next", "ok");
  return 0;
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  signal(SIGPIPE, SIG_IGN);
  const std::string role = argc > 1 ? argv[1] : "";
  const std::string end = argc > 3 ? argv[argc - 2] : "";
  if (role == "survivor" && argc == 5) {
    const bool keep_alive = std::getenv("WITHOUT_KEEP_ALIVE") == nullptr;
    return Survive(argv[2], end == "server", argv[4], keep_alive);
  }
  if (role == "victim" && argc == 6)
    Victim(Connected(argv[2], argv[3]), argv[5]).Live(end == "client");
  std::fprintf(stderr, "dying_program survivor PORT END POINT | victim HOST PORT END POINT\n");
  return 2;
}
