// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// One of two processes, in two hosts, between which verbs reads memory:
//   transfer_program owner PORT BYTES
//   transfer_program reader HOST PORT BYTES CASE
// Attach frames and the key travel over TCP. The reader prints lines "name value".

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr uint8_t kFill = 0xee;
constexpr int kReads = 8;
constexpr std::string_view kCounters = "/sys/class/infiniband/rxe0/ports/1/hw_counters";

uint8_t ByteAt(uint64_t offset) { return static_cast<uint8_t>(offset * 2654435761u >> 13); }

void Must(bool held, const char* what) {
  Check(held, std::string(what) + ": " + std::strerror(errno));
}

// Frames over TCP: a size of four bytes, and then as many.
class Socket {
 public:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}

  void Send(const std::string& frame) {
    const uint32_t size = htonl(static_cast<uint32_t>(frame.size()));
    const std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
    const std::string all = bytes + frame;
    Must(send(fd_.get(), all.data(), all.size(), 0) == static_cast<ssize_t>(all.size()), "send");
  }
  std::string Receive() {
    uint32_t size = 0;
    Must(recv(fd_.get(), &size, sizeof(size), MSG_WAITALL) == sizeof(size), "recv");
    std::string frame(ntohl(size), '\0');
    const ssize_t got = recv(fd_.get(), frame.data(), frame.size(), MSG_WAITALL);
    Must(got == static_cast<ssize_t>(frame.size()), "recv");
    return frame;
  }
  // A host ends right after its program, and what is still on its way over a slow link with it. So
  // who speaks last waits until the other one has it, and that one stays until it knows: until the
  // connection has ended, or as long as any acknowledgement takes.
  void Flush() {
    const auto begin = std::chrono::steady_clock::now();
    int unacknowledged = 1;
    while (unacknowledged > 0) {
      Check(std::chrono::steady_clock::now() - begin < kPatience, "the other host has not got it");
      Must(ioctl(fd_.get(), SIOCOUTQ, &unacknowledged) == 0, "SIOCOUTQ");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void Linger() {
    pollfd polled = {fd_.get(), POLLIN, 0};
    poll(&polled, 1, 3000);
  }

 private:
  UniqueFd fd_;
};

sockaddr_in AddressOf(const char* host, const char* port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  Must(inet_pton(AF_INET, host, &address.sin_addr) == 1, host);
  return address;
}

Socket Accepted(const char* port) {
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
  const sockaddr_in address = AddressOf("0.0.0.0", port);
  const auto* const plain = reinterpret_cast<const sockaddr*>(&address);
  Must(bind(listener.get(), plain, sizeof(address)) == 0, "bind");
  Must(listen(listener.get(), 1) == 0, "listen");
  UniqueFd fd(accept(listener.get(), nullptr, nullptr));
  Must(fd.valid(), "accept");
  return Socket(std::move(fd));
}

// The other host may not be up yet.
Socket Connected(const char* host, const char* port) {
  const sockaddr_in address = AddressOf(host, port);
  const auto* const plain = reinterpret_cast<const sockaddr*>(&address);
  const auto begin = std::chrono::steady_clock::now();
  while (true) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
    if (connect(fd.get(), plain, sizeof(address)) == 0) return Socket(std::move(fd));
    Must(std::chrono::steady_clock::now() - begin < kPatience, "connect");
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

std::map<std::string, uint64_t> Counters() {
  std::map<std::string, uint64_t> counters;
  for (const auto& file : std::filesystem::directory_iterator(kCounters)) {
    std::ifstream(file.path()) >> counters[file.path().filename()];
  }
  return counters;
}

template <typename Value>
void Say(const std::string& name, const Value& value) {
  if constexpr (std::is_convertible_v<Value, std::string>) {
    std::printf("%s %s\n", name.c_str(), std::string(value).c_str());
  } else {
    std::printf("%s %s\n", name.c_str(), std::to_string(value).c_str());
  }
  std::fflush(stdout);
}

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

void Impair(const std::string& how) {
  const std::string command = "tc qdisc change dev vec0 root netem limit 100000 " + how;
  Check(std::system(command.c_str()) == 0, command);
}

double Seconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
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
  const auto connection = Value(end.Take());
  const Key key = socket.Receive();
  if (name == "read") ReadAll(*connection, key, segment->data(), size);
  if (name == "close-late") CloseEarly(*connection, key, segment->data(), size, false);
  if (name == "close-lost") CloseEarly(*connection, key, segment->data(), size, true);
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
