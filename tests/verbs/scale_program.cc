// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Many connections of one process with another one of the same host:
//   scale_program peers COUNT      all of them idle, then all of them busy at once
//   scale_program speed            one of them: bytes per second, and time of round trips
// Prints lines "name value"; a wrong byte or a queue that overruns ends it.

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <thread>
#include <vector>

#include "tests/verbs/pair.h"
#include "tests/verbs/queue_counts.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr size_t kStreamBytes = 160 << 10;
constexpr uint64_t kMessages = 24;
constexpr size_t kReadBytes = 64 << 10;
constexpr uint64_t kReads = 3;
constexpr auto kTooLong = std::chrono::minutes(2);

uint8_t ByteAt(uint64_t position, uint64_t stream) {
  return static_cast<uint8_t>((position + stream * 7919) * 2654435761u >> 11);
}

template <typename Value>
void Say(const std::string& name, Value value) {
  std::cout << name << ' ' << value << std::endl;
}

// What the two processes tell each other beside the device: frames, keys, and that they are done.
class Talk {
 public:
  explicit Talk(int fd) : fd_(fd) {}
  void Send(const std::string& words) const {
    Check(send(fd_, words.data(), words.size(), 0) == static_cast<ssize_t>(words.size()), "send");
  }
  std::string Receive() const {
    std::string words(4096, '\0');
    const ssize_t size = recv(fd_, words.data(), words.size(), 0);
    Check(size > 0, "the other process has gone");
    words.resize(static_cast<size_t>(size));
    return words;
  }
  void Meet() const {
    Send("here");
    Check(Receive() == "here", "another word");
  }

 private:
  const int fd_;
};

std::unique_ptr<Connection> Join(const Talk& talk, bool server) {
  End end;
  const auto attachment = Value(server ? Get().Accept(end.events()) : Get().Connect(end.events()));
  if (server) {
    talk.Send(*end.NextFrame());
    attachment->TakeFrame(talk.Receive());
    talk.Send(*end.NextFrame());
  } else {
    attachment->TakeFrame(talk.Receive());
    talk.Send(*end.NextFrame());
    attachment->TakeFrame(talk.Receive());
  }
  return Value(end.Take());
}

// One end with what it has still to do.
struct Line {
  std::unique_ptr<Connection> connection;
  Key peer_key;
  uint64_t number = 0;  // of the stream that it sends; the peer's is the next one
  uint64_t sent = 0;
  uint64_t to_send = 0;
  uint64_t read = 0;
  uint64_t to_read = 0;
  uint64_t posted = 0;
  uint64_t to_post = 0;
  uint64_t taken = 0;
  uint64_t to_take = 0;
  bool full = false;
  bool post_full = false;

  bool over() const {
    // The peer may be a step ahead.
    return sent == to_send && read >= to_read && posted == to_post && taken >= to_take;
  }
};

// All that can be done now; whether that was anything.
bool Step(Line* line) {
  Connection& connection = *line->connection;
  bool moved = false;
  std::vector<uint8_t> bytes(40000);
  line->full = line->post_full = false;
  if (line->sent < line->to_send) {
    const size_t size = std::min<uint64_t>(bytes.size(), line->to_send - line->sent);
    for (size_t i = 0; i < size; ++i) bytes[i] = ByteAt(line->sent + i, line->number);
    const iovec part = {bytes.data(), size};
    const size_t written = Value(connection.Write(&part, 1));
    line->sent += written;
    line->full = written < size;
    moved = written > 0;
  }
  if (line->posted < line->to_post) {
    Message message;
    message.bytes.fill(ByteAt(line->posted, line->number));
    const bool posted = Value(connection.Post(message));
    line->post_full = !posted;
    line->posted += posted ? 1 : 0;
    moved = moved || posted;
  }
  const size_t got = Value(connection.Read(bytes.data(), bytes.size()));
  for (size_t i = 0; i < got; ++i) {
    Check(bytes[i] == ByteAt(line->read + i, line->number ^ 1), "a byte of the stream");
  }
  line->read += got;
  moved = moved || got > 0;
  for (Message message; Value(connection.Take(&message)); moved = true) {
    Check(message.bytes[31] == ByteAt(line->taken++, line->number ^ 1), "a message");
  }
  return moved;
}

// false: there is something to do.
bool Sleeps(Line* line) {
  Connection& connection = *line->connection;
  bool sleeps = true;
  if (line->full) sleeps = Value(connection.ArmWrite()) && sleeps;
  if (line->post_full && !line->full) sleeps = Value(connection.ArmPost()) && sleeps;
  return Value(connection.ArmRead()) && sleeps;
}

void Drive(std::vector<Line>* lines) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pollfd> polled(lines->size());
  std::vector<bool> ready(lines->size(), true);
  for (size_t i = 0; i < lines->size(); ++i) {
    polled[i] = {(*lines)[i].connection->wake_fd(), POLLIN, 0};
  }
  for (;;) {
    bool awake = false;
    bool over = true;
    for (size_t i = 0; i < lines->size(); ++i) {
      Line& line = (*lines)[i];
      if (ready[i]) ready[i] = Step(&line) || !Sleeps(&line);
      awake = awake || ready[i];
      over = over && line.over();
    }
    if (over) return;
    Check(std::chrono::steady_clock::now() - begin < kTooLong, "it takes too long");
    Check(poll(polled.data(), polled.size(), awake ? 0 : 1000) >= 0, "poll");
    for (size_t i = 0; i < polled.size(); ++i) {
      if ((polled[i].revents & POLLIN) == 0) continue;
      (*lines)[i].connection->ClearWake();
      ready[i] = true;
    }
  }
}

// Soft-RoCE's; soft-iWARP counts nothing.
std::map<std::string, uint64_t> Counters() {
  std::map<std::string, uint64_t> counters;
  const std::filesystem::path folder = "/sys/class/infiniband/rxe0/ports/1/hw_counters";
  if (!std::filesystem::exists(folder)) return counters;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    std::ifstream(file.path()) >> counters[file.path().filename()];
  }
  return counters;
}

// A line of /proc, in KiB.
uint64_t Kilobytes(const char* file, const std::string& name) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + ":", 0) == 0) return std::stoull(line.substr(name.size() + 1));
  }
  return 0;
}

struct Memory {
  uint64_t pinned = Kilobytes("/proc/self/status", "VmPin");
  uint64_t resident = Kilobytes("/proc/self/status", "VmRSS");
  uint64_t available = Kilobytes("/proc/meminfo", "MemAvailable");
};

void SayMemory(const std::string& state, const Memory& before, uint64_t peers) {
  const Memory now;
  Say(state + "_pinned_kib_per_peer", (now.pinned - before.pinned) / peers);
  Say(state + "_resident_kib_per_peer", (now.resident - before.resident) / peers);
  // Of both processes and the kernel.
  Say(state + "_machine_kib_per_pair",
      (static_cast<int64_t>(before.available) - static_cast<int64_t>(now.available)) /
          static_cast<int64_t>(peers));
}

void Idle(std::vector<Line>* lines) {
  // As gRPC's ends say that they are there.
  for (const uint64_t bytes : {60, 300, 200}) {
    for (Line& line : *lines) {
      line.to_send += bytes;
      line.to_read += bytes;
    }
    Drive(lines);
  }
}

void Busy(std::vector<Line>* lines, const uint8_t* expected) {
  const auto segment = Value(memory::Segment::Create(lines->size() * kReads * kReadBytes));
  const auto registration = Value(Get().Register(segment, 0, segment->size(), Access::kRead));
  std::atomic<uint64_t> ended{0};
  for (size_t i = 0; i < lines->size(); ++i) {
    Line& line = (*lines)[i];
    line.to_send += kStreamBytes;
    line.to_read += kStreamBytes;
    line.to_post += kMessages;
    line.to_take += kMessages;
    for (uint64_t part = 0; part < kReads; ++part) {
      line.connection->Get(line.peer_key, part * kReadBytes,
                           segment->data() + (i * kReads + part) * kReadBytes, kReadBytes, segment,
                           [&ended](const Status& status) {
                             CheckCode(status, StatusCode::kOk);
                             ++ended;
                           });
    }
  }
  Drive(lines);
  const auto begin = std::chrono::steady_clock::now();
  while (ended < lines->size() * kReads) {
    Check(std::chrono::steady_clock::now() - begin < kTooLong, "a read does not end");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (size_t i = 0; i < lines->size(); ++i) {
    Check(
        std::memcmp(segment->data() + i * kReads * kReadBytes, expected, kReads * kReadBytes) == 0,
        "a byte that was read");
    Check(!(*lines)[i].connection->closed(), "a connection has failed");
  }
}

int Peers(const Talk& talk, bool server, uint64_t count) {
  const auto segment = Value(memory::Segment::Create(kReads * kReadBytes));
  for (size_t i = 0; i < segment->size(); ++i) segment->data()[i] = ByteAt(i, 1u << 20);
  const auto registration = Value(Get().Register(segment, 0, segment->size(), Access::kRead));
  // What the first one takes for all.
  const std::unique_ptr<Connection> first = Join(talk, server);
  talk.Meet();
  CloseNow(*first);
  talk.Meet();
  std::this_thread::sleep_for(std::chrono::seconds(1));
  const Memory before;
  const size_t descriptors = Descriptors();
  const uint64_t registrations = QueueCounts::registrations;
  const auto begin = std::chrono::steady_clock::now();
  std::vector<Line> lines(count);
  for (uint64_t i = 0; i < count; ++i) {
    lines[i].connection = Join(talk, server);
    lines[i].number = 2 * i + (server ? 1 : 0);
    talk.Send(Value(lines[i].connection->Export(registration)));
    lines[i].peer_key = talk.Receive();
  }
  const std::chrono::duration<double> connected = std::chrono::steady_clock::now() - begin;
  Idle(&lines);
  talk.Meet();
  if (!server) {
    Say("peers", count);
    Say("connect_ms_per_pair", connected.count() * 1000 / static_cast<double>(count));
    SayMemory("idle", before, count);
    Say("descriptors_per_peer", (Descriptors() - descriptors) / count);
    Say("queue_pairs", QueueCounts::pairs());
    Say("completion_queues", QueueCounts::queues());
    Say("idle_registrations", QueueCounts::registrations - registrations);
    std::system("rdma resource show | sed 's/^[^a-z]*/resources /'");
  }
  talk.Meet();
  const auto counters = Counters();
  const auto busy = std::chrono::steady_clock::now();
  const uint64_t events = QueueCounts::events;
  Busy(&lines, segment->data());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - busy;
  talk.Meet();
  if (!server) {
    SayMemory("busy", before, count);
    Say("busy_seconds", took.count());
    Say("busy_events", QueueCounts::events - events);
    for (const auto& [name, value] : Counters()) {
      if (name.find("rnr") != std::string::npos || name.find("err") != std::string::npos ||
          name == "sent_pkts") {
        Say(name, value - counters.at(name));
      }
    }
    Say("most_sends_percent", QueueCounts::most().send);
    Say("most_receives_percent", QueueCounts::most().receive);
    Say("most_completions_percent", QueueCounts::most().completions);
  }
  talk.Meet();
  for (Line& line : lines) line.connection->Close({});
  for (Line& line : lines) CloseNow(*line.connection);
  lines.clear();
  const auto closing = std::chrono::steady_clock::now();
  while (Descriptors() != descriptors) {
    Check(std::chrono::steady_clock::now() - closing < kPatience, "descriptors are left");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  talk.Meet();
  if (!server) Say("left_pinned_kib", Memory().pinned - before.pinned);
  return 0;
}

// Seconds for `bytes` one way, or for each of `times` times `size` bytes back and forth.
double Timed(const Talk& talk, std::vector<Line>* lines, bool sends, uint64_t bytes) {
  talk.Meet();
  Line& line = lines->front();
  const auto begin = std::chrono::steady_clock::now();
  (sends ? line.to_send : line.to_read) += bytes;
  Drive(lines);
  // That all has come.
  (sends ? line.to_read : line.to_send) += 1;
  Drive(lines);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

double RoundTrips(const Talk& talk, std::vector<Line>* lines, bool begins, uint64_t size,
                  int times) {
  talk.Meet();
  Line& line = lines->front();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    for (const bool mine : {begins, !begins}) {
      (mine ? line.to_send : line.to_read) += size;
      Drive(lines);
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times;
}

int Speed(const Talk& talk, bool server) {
  std::vector<Line> lines(1);
  lines[0].connection = Join(talk, server);
  lines[0].number = server ? 1 : 0;
  const auto report = [&](const char* name, double value) {
    if (!server) Say(name, value);
  };
  report("first_mbyte_ms", Timed(talk, &lines, !server, 1 << 20) * 1000);
  for (int round = 0; round < 2; ++round) {
    constexpr uint64_t kBytes = 8 << 20;
    const uint64_t streamed = QueueCounts::events;
    report("mbytes_per_s", kBytes / 1e6 / Timed(talk, &lines, !server, kBytes));
    report("events_per_mbyte", static_cast<double>(QueueCounts::events - streamed) / 8);
    const uint64_t events = QueueCounts::events;
    const uint64_t arms = QueueCounts::arms;
    constexpr int kTimes = 800;
    report("round_trip_32_us", RoundTrips(talk, &lines, !server, 32, kTimes) * 1e6);
    report("events_per_round_trip", static_cast<double>(QueueCounts::events - events) / kTimes);
    report("arms_per_round_trip", static_cast<double>(QueueCounts::arms - arms) / kTimes);
    constexpr int kLargeTimes = 200;
    const uint64_t before = QueueCounts::events;
    report("round_trip_20000_us", RoundTrips(talk, &lines, !server, 20000, kLargeTimes) * 1e6);
    report("events_per_round_trip_20000",
           static_cast<double>(QueueCounts::events - before) / kLargeTimes);
  }
  talk.Meet();
  CloseNow(*lines[0].connection);
  return 0;
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  const std::string what = argc > 1 ? argv[1] : "";
  const uint64_t count = argc == 3 ? std::strtoull(argv[2], nullptr, 10) : 0;
  const bool peers = what == "peers" && count > 0;
  if (!peers && !(what == "speed" && argc == 2)) {
    std::fputs("scale_program peers COUNT | speed\n", stderr);
    return 2;
  }
  int fds[2] = {};
  Check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0, "socketpair");
  const pid_t child = fork();
  Check(child >= 0, "fork");
  const bool server = child == 0;
  close(fds[server ? 0 : 1]);
  const Talk talk(fds[server ? 1 : 0]);
  QueueCounts::Watch();
  const int status = peers ? Peers(talk, server, count) : Speed(talk, server);
  if (server) std::_Exit(status);
  int ended = -1;
  Check(waitpid(child, &ended, 0) == child && ended == 0, "the other process has failed");
  return status;
}
