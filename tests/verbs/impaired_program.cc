// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// One of two processes in two hosts that stream to each other and read each other's memory, while
// something is done to the link, the address or the process of the second one:
//   impaired_program first PORT BYTES CASE
//   impaired_program second HOST PORT BYTES CASE
// Each sends BYTES, which the other one compares. Prints lines "name value".

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/verbs/two_hosts.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

// What is read at once, of the bytes that a stream moves.
constexpr size_t kReadsOfAStream = 16;
constexpr size_t kPiece = 64 << 10;
// Without a byte for so long an end gives up, which none does.
constexpr double kMostSeconds = 60;
constexpr int kStopSeconds = 5;

double ProcessorSeconds() {
  rusage used = {};
  Must(getrusage(RUSAGE_SELF, &used) == 0, "getrusage");
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Of this process, in KiB.
uint64_t ResidentMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    uint64_t kib = 0;
    if (word == "VmRSS:" && status >> kib) return kib;
  }
  Check(false, "no VmRSS");
  return 0;
}

// READs that have brought their bytes.
std::atomic<uint64_t> reads_done{0};

// The longest time in which the stream stood still, what it cost, and what was read meanwhile.
class Stall {
 public:
  void Moved() {
    const double seconds = Seconds(since_);
    if (seconds > longest_) {
      longest_ = seconds;
      processor_ = ProcessorSeconds() - processor_then_;
      memory_ = static_cast<int64_t>(ResidentMemory()) - static_cast<int64_t>(memory_then_);
      reads_ = reads_done - reads_then_;
    }
    since_ = std::chrono::steady_clock::now();
    processor_then_ = ProcessorSeconds();
    memory_then_ = ResidentMemory();
    reads_then_ = reads_done;
  }
  double now() const { return Seconds(since_); }
  void Report() const {
    Say("stall_seconds", longest_);
    Say("stall_processor_seconds", processor_);
    Say("stall_memory_kib", memory_);
    Say("stall_reads", reads_);
  }

 private:
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  double processor_then_ = ProcessorSeconds();
  uint64_t memory_then_ = ResidentMemory();
  double longest_ = 0;
  double processor_ = 0;
  int64_t memory_ = 0;
  uint64_t reads_then_ = 0;
  uint64_t reads_ = 0;
};

// Both directions of the stream, as gRPC's endpoint drives it: no call blocks, and who has nothing
// to do sleeps until it is woken.
class Streams {
 public:
  Streams(Connection& connection, size_t size) : connection_(connection), size_(size) {}

  // kOk: all has been sent, and has come.
  Status Run(const std::function<void()>& half_way) {
    while (sent_ < size_ || received_ < size_) {
      StatusOr<bool> moved = Move();
      if (!moved.ok()) return moved.status();
      if (received_ >= size_ / 2 && !std::exchange(half_, true)) half_way();
      if (*moved) {
        stall_.Moved();
        continue;
      }
      StatusOr<bool> read = connection_.ArmRead();
      if (!read.ok()) return read.status();
      StatusOr<bool> write = sent_ < size_ ? connection_.ArmWrite() : true;
      if (!write.ok()) return write.status();
      if (!*read || !*write) continue;
      ++sleeps_;
      pollfd polled = {connection_.wake_fd(), POLLIN, 0};
      poll(&polled, 1, 1000);
      connection_.ClearWake();
      Check(stall_.now() < kMostSeconds, "nothing moves, and nobody says so");
    }
    return Status();
  }

  void Report() const {
    Say("sent", sent_);
    Say("received", received_);
    Say("wrong", wrong_);
    stall_.Report();
  }

 private:
  StatusOr<bool> Move() {
    bool moved = false;
    if (sent_ < size_) {
      bytes_.resize(std::min(kPiece, size_ - sent_));
      for (size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = ByteAt(sent_ + i);
      const iovec part = {bytes_.data(), bytes_.size()};
      StatusOr<size_t> wrote = connection_.Write(&part, 1);
      if (!wrote.ok()) return wrote.status();
      sent_ += *wrote;
      moved = *wrote > 0;
    }
    bytes_.resize(kPiece);
    StatusOr<size_t> got = connection_.Read(bytes_.data(), bytes_.size());
    if (!got.ok()) return got.status();
    for (size_t i = 0; i < *got; ++i) wrong_ += bytes_[i] != ByteAt(received_ + i);
    received_ += *got;
    return moved || *got > 0;
  }

  Connection& connection_;
  const size_t size_;
  std::vector<uint8_t> bytes_;
  size_t sent_ = 0;
  size_t received_ = 0;
  size_t wrong_ = 0;
  size_t sleeps_ = 0;
  bool half_ = false;
  Stall stall_;
};

// Reads the peer's memory beside the streams, one time after the other, until told to stop or until
// one fails.
class Reads {
 public:
  Reads(Connection& connection, Key key, size_t size)
      : thread_([this, &connection, key = std::move(key), size] { Run(connection, key, size); }) {}
  void Stop() {
    stop_ = true;
    thread_.join();
    Say("reads", reads_done.load());
    Say("read_wrong", wrong_);
    Say("read_code", static_cast<int>(status_.code()));
    Say("read_status", status_.message() + ".");
  }

 private:
  void Run(Connection& connection, const Key& key, size_t size) {
    std::vector<uint8_t> into(size);
    while (!stop_) {
      std::fill(into.begin(), into.end(), 0);
      status_ = GetNow(connection, key, 0, into.data(), into.size());
      if (!status_.ok()) return;
      ++reads_done;
      for (size_t i = 0; i < into.size(); ++i) wrong_ += into[i] != ByteAt(i);
    }
  }

  std::atomic<bool> stop_{false};
  uint64_t wrong_ = 0;
  Status status_;
  std::thread thread_;
};

void Run(const std::string& command) { Check(std::system(command.c_str()) == 0, command); }

// What is done to the second one. The streams wait until it has begun, and so cannot be over
// before; it ends in a thread of its own, beside them.
class Fault {
 public:
  explicit Fault(std::string name) : name_(std::move(name)) {}
  void Begin() {
    begin_ = std::chrono::steady_clock::now();
    if (name_ == "cut-1") Cut(1);
    if (name_ == "cut-8") Cut(8);
    // A process that was there before this one had a device lets it go on.
    if (name_ == "stopped" || name_ == "stopped-read") kill(getpid(), SIGSTOP);
    if (name_ == "address") {
      Run("ip addr del 10.77.0.2/24 dev vec0");
      EndAfter(8, [] { Run("ip addr add 10.77.0.2/24 dev vec0"); });
    }
  }
  void End() {
    if (!thread_.joinable()) return;
    Say("since_fault", Seconds(begin_));
    thread_.join();
  }

 private:
  void Cut(int seconds) {
    Impair("loss 100%");
    EndAfter(seconds, [] { Impair("loss 0%"); });
  }
  void EndAfter(int seconds, std::function<void()> end) {
    thread_ = std::thread([seconds, end = std::move(end)] {
      std::this_thread::sleep_for(std::chrono::seconds(seconds));
      end();
    });
  }

  const std::string name_;
  std::chrono::steady_clock::time_point begin_{};
  std::thread thread_;
};

std::unique_ptr<Connection> Attached(Socket& socket, bool server) {
  End end;
  const auto attachment = Value(server ? Get().Accept(end.events()) : Get().Connect(end.events()));
  if (server) socket.Send(*end.NextFrame());
  attachment->TakeFrame(socket.Receive());
  const auto frame = end.NextFrame();
  Check(frame.has_value(), "no end could be made");
  socket.Send(*frame);
  if (!server) attachment->TakeFrame(socket.Receive());
  return Value(end.Take());
}

int Exchange(Socket socket, bool first, size_t size, const std::string& name) {
  const size_t memory = size / kReadsOfAStream;
  const auto segment = Value(ar_grpc::memory::Segment::Create(memory));
  for (size_t i = 0; i < memory; ++i) segment->data()[i] = ByteAt(i);
  const auto registration = Value(Get().Register(segment, 0, memory, Access::kRead));
  auto connection = Attached(socket, first);
  const auto swap_keys = [&] {
    socket.Send(Value(connection->Export(registration)));
    return socket.Receive();
  };
  // Not where it is to be seen what a stalled stream costs.
  const Key peers = swap_keys();
  std::optional<Reads> reads;
  if (name != "stopped") reads.emplace(*connection, peers, memory);
  Fault fault(name);
  Streams streams(*connection, size);
  const auto begin = std::chrono::steady_clock::now();
  const auto before = Counters();
  const Status status = streams.Run([&] {
    if (!first) fault.Begin();
  });
  Say("seconds", Seconds(begin));
  SayWhatWasSentAgain(before);
  Say("code", static_cast<int>(status.code()));
  Say("status", status.message() + ".");
  streams.Report();
  fault.End();
  if (reads.has_value()) reads->Stop();
  Say("closed", static_cast<int>(connection->closed()));
  // TCP still stands, or stands again.
  socket.Send("done");
  socket.Receive();
  CloseNow(*connection);
  connection = Attached(socket, first);
  const Key key = swap_keys();
  std::vector<uint8_t> into(memory);
  CheckCode(GetNow(*connection, key, 0, into.data(), memory), StatusCode::kOk);
  Check(std::equal(into.begin(), into.end(), segment->data()), "wrong bytes");
  Say("next", "ok");
  socket.Send("done");
  socket.Receive();
  CloseNow(*connection);
  // The first one has the other's last word, and so may not ask for an answer to its own: one that
  // is lost is not sent again by a host that has ended. It stays, and sends again what was not
  // received.
  if (first) {
    socket.Linger();
  } else {
    socket.Flush();
  }
  return 0;
}

// Lets the process go on that will stop itself; before it has threads.
void GoOnLater(const std::string& name) {
  if (name != "stopped" && name != "stopped-read") return;
  const pid_t parent = getpid();
  const pid_t child = fork();
  Check(child >= 0, "fork");
  if (child > 0) return;
  while (true) {
    std::ifstream stat("/proc/" + std::to_string(parent) + "/stat");
    if (!stat) std::_Exit(0);
    std::string text;
    std::getline(stat, text);
    if (text.substr(text.rfind(')') + 2, 1) == "T") {
      sleep(kStopSeconds);
      kill(parent, SIGCONT);
      std::_Exit(0);
    }
    usleep(20000);
  }
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  signal(SIGPIPE, SIG_IGN);
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "first" && argc == 5) {
    return Exchange(Accepted(argv[2]), true, std::strtoull(argv[3], nullptr, 10), argv[4]);
  }
  if (role == "second" && argc == 6) {
    GoOnLater(argv[5]);
    return Exchange(Connected(argv[2], argv[3]), false, std::strtoull(argv[4], nullptr, 10),
                    argv[5]);
  }
  std::fprintf(stderr, "impaired_program first PORT BYTES CASE | second HOST PORT BYTES CASE\n");
  return 2;
}
