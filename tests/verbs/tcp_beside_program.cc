// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What verbs costs plain TCP in the same process: round trips between two hosts, both ends of which
// run on their process's reactor, the thread that verbs' completions run on.
//   tcp_beside_program answer PORT
//   tcp_beside_program ask HOST PORT CONNECTIONS ROUNDS
// In each round `ask` prints lines "name value", of round trips per second: of two processes
// without verbs (`none`); of two that have many of its connections, which idle (`idle`), while
// READs go over one of them (`here`), and, to compare with, while two other processes of the same
// hosts read (`elsewhere`): that takes as much of the processors and of the link, but of no thread
// here.

#include <netinet/tcp.h>
#include <sys/wait.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/verbs/two_hosts.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr size_t kReadBytes = 128 << 10;
// At once: their answers are a millisecond or two of the link, so that TCP has its turn often.
constexpr int kReads = 2;
constexpr std::chrono::milliseconds kMeasured(1000);
// Of a round trip.
constexpr size_t kAsked = 64;

void TellAtOnce(int fd) {
  const int on = 1;
  Must(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
}

// Sends back what comes, on the reactor.
void Echo(int fd) {
  TellAtOnce(fd);
  CheckCode(Reactor::Get().Add(
                fd,
                [fd] {
                  char bytes[kAsked];
                  const ssize_t size = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
                  if (size > 0) {
                    Must(send(fd, bytes, static_cast<size_t>(size), MSG_NOSIGNAL) == size, "send");
                  } else {
                    Reactor::Get().Remove(fd);
                  }
                }),
            StatusCode::kOk);
}

// Asks again as soon as all of an answer has come, on the reactor.
class Asker {
 public:
  explicit Asker(int fd) : fd_(fd) { TellAtOnce(fd); }

  double PerSecond() {
    answers_ = 0;
    stop_ = false;
    CheckCode(Reactor::Get().Add(fd_, [this] { Take(); }), StatusCode::kOk);
    const auto begin = std::chrono::steady_clock::now();
    RunOnReactor([this] { Ask(); });
    std::this_thread::sleep_for(kMeasured);
    const double perSecond = static_cast<double>(answers_) / Seconds(begin);
    stop_ = true;
    // The last answer.
    while (!idle_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Reactor::Get().Remove(fd_);
    return perSecond;
  }

 private:
  void Ask() {
    const char bytes[kAsked] = {};
    idle_ = false;
    Must(send(fd_, bytes, sizeof(bytes), MSG_NOSIGNAL) == sizeof(bytes), "send");
  }
  void Take() {
    char bytes[kAsked];
    const ssize_t size = recv(fd_, bytes, sizeof(bytes) - come_, MSG_DONTWAIT);
    if (size < 0 && errno == EAGAIN) return;
    Must(size > 0, "recv");
    come_ += static_cast<size_t>(size);
    if (come_ < kAsked) return;
    come_ = 0;
    ++answers_;
    if (stop_) {
      idle_ = true;
    } else {
      Ask();
    }
  }

  const int fd_;
  size_t come_ = 0;
  std::atomic<uint64_t> answers_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> idle_{true};
};

// The peer's end of connections, until it says that it has done: "connect" or "done".
void Answer(Socket* socket) {
  const auto segment = Value(memory::Segment::Create(kReadBytes));
  for (size_t i = 0; i < kReadBytes; ++i) segment->data()[i] = ByteAt(i);
  std::shared_ptr<Registration> registration;
  std::vector<std::unique_ptr<Connection>> connections;
  while (socket->Receive() == "connect") {
    if (!registration) {
      registration = Value(Get().Register(segment, 0, kReadBytes, Access::kRead));
    }
    End end;
    const auto attachment = Value(Get().Accept(end.events()));
    socket->Send(*end.NextFrame());
    attachment->TakeFrame(socket->Receive());
    socket->Send(*end.NextFrame());
    connections.push_back(Value(end.Take()));
    socket->Send(Value(connections.back()->Export(registration)));
  }
}

struct Made {
  std::unique_ptr<Connection> connection;
  Key key;
};

Made Connect(Socket* socket) {
  socket->Send("connect");
  End end;
  const auto attachment = Value(Get().Connect(end.events()));
  attachment->TakeFrame(socket->Receive());
  socket->Send(*end.NextFrame());
  attachment->TakeFrame(socket->Receive());
  Made made;
  made.connection = Value(end.Take());
  made.key = socket->Receive();
  return made;
}

// READs over a connection, each as soon as one before it has ended.
class Reader {
 public:
  explicit Reader(Made* made)
      : made_(made), segment_(Value(memory::Segment::Create(kReads * kReadBytes))) {
    registration_ = Value(Get().Register(segment_, 0, segment_->size(), Access::kRead));
  }

  void Start() {
    stop_ = false;
    begin_ = std::chrono::steady_clock::now();
    ended_ = 0;
    for (int i = 0; i < kReads; ++i) Read(i);
  }
  // Its bytes per second, in millions.
  double Stop() {
    const double rate = static_cast<double>(ended_ * kReadBytes) / 1e6 / Seconds(begin_);
    stop_ = true;
    while (running_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (size_t i = 0; i < segment_->size(); ++i) {
      Check(segment_->data()[i] == ByteAt(i % kReadBytes), "a byte that was read");
    }
    return rate;
  }

 private:
  void Read(int place) {
    ++running_;
    made_->connection->Get(made_->key, 0, segment_->data() + place * kReadBytes, kReadBytes,
                           segment_, [this, place](const Status& status) {
                             CheckCode(status, StatusCode::kOk);
                             ++ended_;
                             if (!stop_) Read(place);
                             --running_;
                           });
  }

  Made* const made_;
  const std::shared_ptr<memory::Segment> segment_;
  std::shared_ptr<Registration> registration_;
  std::chrono::steady_clock::time_point begin_;
  std::atomic<uint64_t> ended_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
};

// Another process, and the end of a socket to it.
struct Child {
  pid_t pid = -1;
  UniqueFd socket;
};

Child Fork(const std::function<void(int parent)>& run) {
  int fds[2] = {};
  Must(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) == 0, "socketpair");
  Child child{fork(), UniqueFd(fds[0])};
  Must(child.pid >= 0, "fork");
  if (child.pid == 0) {
    child.socket.reset();
    run(fds[1]);
    std::_Exit(0);
  }
  close(fds[1]);
  return child;
}

void Await(Child* child) {
  child->socket.reset();
  int ended = -1;
  Check(waitpid(child->pid, &ended, 0) == child->pid && ended == 0, "a child has failed");
}

// false: the other process has gone.
bool Hear(int fd) {
  char word = 0;
  return recv(fd, &word, 1, 0) == 1;
}
void Tell(int fd) { Must(send(fd, "w", 1, MSG_NOSIGNAL) == 1, "another process"); }
double HearValue(int fd) {
  double value = 0;
  Must(recv(fd, &value, sizeof(value), 0) == sizeof(value), "another process");
  return value;
}
void TellValue(int fd, double value) {
  Must(send(fd, &value, sizeof(value), MSG_NOSIGNAL) == sizeof(value), "another process");
}

// The ports of the pairs of processes, from the first one.
enum Port { kControl, kEchoed, kElsewhere, kBare };
std::string At(const char* port, Port which) { return std::to_string(std::atoi(port) + which); }

// Reads from one word of its parent's to the next, which gets the rate.
void ReadElsewhere(const char* host, const char* port, int parent) {
  Socket peer = Connected(host, At(port, kElsewhere).c_str());
  Made made = Connect(&peer);
  Reader reader(&made);
  while (Hear(parent)) {
    reader.Start();
    Check(Hear(parent), "the parent");
    TellValue(parent, reader.Stop());
  }
  CloseNow(*made.connection);
  peer.Send("done");
  peer.Flush();
}

int Ask(const char* host, const char* port, int connections, int rounds) {
  Child elsewhere = Fork([&](int parent) { ReadElsewhere(host, port, parent); });
  Child bare = Fork([&](int parent) {
    Socket asked = Connected(host, At(port, kBare).c_str());
    Asker asker(asked.fd());
    while (Hear(parent)) TellValue(parent, asker.PerSecond());
  });
  Socket peer = Connected(host, At(port, kControl).c_str());
  Socket asked = Connected(host, At(port, kEchoed).c_str());
  Asker asker(asked.fd());
  std::vector<Made> made;
  for (int i = 0; i < connections; ++i) made.push_back(Connect(&peer));
  Reader reader(&made.front());
  (void)asker.PerSecond();  // the start of all
  for (int round = 0; round < rounds; ++round) {
    Tell(bare.socket.get());
    Say("none", HearValue(bare.socket.get()));
    Say("idle", asker.PerSecond());
    Tell(elsewhere.socket.get());
    Say("elsewhere", asker.PerSecond());
    Tell(elsewhere.socket.get());
    Say("elsewhere_mbytes", HearValue(elsewhere.socket.get()));
    reader.Start();
    Say("here", asker.PerSecond());
    Say("here_mbytes", reader.Stop());
  }
  for (const Made& each : made) CloseNow(*each.connection);
  Await(&bare);
  Await(&elsewhere);
  peer.Send("done");
  peer.Flush();
  return 0;
}

int AnswerAll(const char* port) {
  Child elsewhere = Fork([port](int) {
    Socket peer = Accepted(At(port, kElsewhere).c_str());
    Answer(&peer);
  });
  Child bare = Fork([port](int) {
    Socket echoed = Accepted(At(port, kBare).c_str());
    Echo(echoed.fd());
    pollfd polled = {echoed.fd(), POLLRDHUP, 0};
    Must(poll(&polled, 1, -1) == 1, "poll");
  });
  Socket peer = Accepted(At(port, kControl).c_str());
  Socket echoed = Accepted(At(port, kEchoed).c_str());
  Echo(echoed.fd());
  Answer(&peer);
  Await(&bare);
  Await(&elsewhere);
  peer.Linger();
  return 0;
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  const std::string role = argc > 1 ? argv[1] : "";
  if (role == "answer" && argc == 3) return AnswerAll(argv[2]);
  if (role == "ask" && argc == 6) {
    return Ask(argv[2], argv[3], std::atoi(argv[4]), std::atoi(argv[5]));
  }
  std::fprintf(stderr, "tcp_beside_program answer PORT | ask HOST PORT CONNECTIONS ROUNDS\n");
  return 2;
}
