// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_VERBS_TWO_HOSTS_H_
#define TESTS_VERBS_TWO_HOSTS_H_

#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/base/os.h"

// What the programs share of which one process runs in each of two hosts.
namespace ar_grpc::fabric::verbs::testing {

inline constexpr std::string_view kCounters = "/sys/class/infiniband/rxe0/ports/1/hw_counters";

inline void Must(bool held, const char* what) {
  Check(held, std::string(what) + ": " + std::strerror(errno));
}

// Frames over TCP: a size of four bytes, and then as many.
class Socket {
 public:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}

  void Send(const std::string& frame) { Must(SendOrEnd(frame), "send"); }
  // false: the connection has ended, as errno says.
  bool SendOrEnd(const std::string& frame) {
    const uint32_t size = htonl(static_cast<uint32_t>(frame.size()));
    const std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
    const std::string all = bytes + frame;
    return send(fd_.get(), all.data(), all.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(all.size());
  }
  std::string Receive() {
    std::optional<std::string> frame = ReceiveOrEnd();
    Must(frame.has_value(), "recv");
    return std::move(*frame);
  }
  // nullopt: the connection has ended; errno is 0 where that was in order.
  std::optional<std::string> ReceiveOrEnd() {
    errno = 0;
    uint32_t size = 0;
    if (recv(fd_.get(), &size, sizeof(size), MSG_WAITALL) != sizeof(size)) return std::nullopt;
    std::string frame(ntohl(size), '\0');
    const ssize_t got = recv(fd_.get(), frame.data(), frame.size(), MSG_WAITALL);
    if (got != static_cast<ssize_t>(frame.size())) return std::nullopt;
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
  int fd() const { return fd_.get(); }
  void Linger() {
    pollfd polled = {fd_.get(), POLLIN, 0};
    poll(&polled, 1, 3000);
  }

 private:
  UniqueFd fd_;
};

inline sockaddr_in AddressOf(const char* host, const char* port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(std::atoi(port)));
  Must(inet_pton(AF_INET, host, &address.sin_addr) == 1, host);
  return address;
}

inline Socket Accepted(const char* port) {
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
inline Socket Connected(const char* host, const char* port) {
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

// Soft-RoCE's packets; of soft-iWARP, which counts nothing, the bytes of its network device.
inline std::map<std::string, uint64_t> Counters() {
  std::map<std::string, uint64_t> counters;
  if (!std::filesystem::exists(kCounters)) {
    for (const std::string name : {"rx_bytes", "tx_bytes"}) {
      std::ifstream("/sys/class/net/vec0/statistics/" + name) >> counters[name];
    }
    return counters;
  }
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

// By this end's device, or because this end asked for it.
inline void SayWhatWasSentAgain(const std::map<std::string, uint64_t>& before) {
  uint64_t again = 0;
  for (const auto& [name, value] : Counters()) {
    if (name == "out_of_seq_request" || name == "completer_retry_err" ||
        name == "duplicate_request") {
      again += value - before.at(name);
    }
  }
  Say("again", again);
}

// What the kernel has for all devices, by its name there: "qp", "mr" and others. From outside of
// the library.
inline std::map<std::string, int> Resources() {
  FILE* const shown = popen("rdma resource show", "r");
  Must(shown != nullptr, "rdma resource show");
  std::string text(4096, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), shown));
  Check(pclose(shown) == 0, "rdma resource show");
  std::istringstream words(text.substr(text.find(": ", text.find(": ") + 2) + 2));
  std::map<std::string, int> resources;
  std::string name;
  for (int count = 0; words >> name >> count;) resources[name] = count;
  Check(resources.count("qp") == 1 && resources.count("mr") == 1, "rdma resource show: " + text);
  return resources;
}

// What a process holds beside its memory.
struct Holdings {
  size_t descriptors = Descriptors();
  std::map<std::string, int> resources = Resources();
  bool operator==(const Holdings& other) const {
    return descriptors == other.descriptors && resources == other.resources;
  }
};

// What stays held, once nothing has changed for a while: what was closed is given up meanwhile.
inline Holdings AtRest() {
  Holdings held;
  auto since = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - since < std::chrono::seconds(1)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    if (const Holdings now; !(now == held)) {
      held = now;
      since = std::chrono::steady_clock::now();
    }
  }
  return held;
}

// Waits until nothing is held that was not held before; how long that took, in seconds.
inline double UntilNothingIsLeftBut(const Holdings& before) {
  const auto begin = std::chrono::steady_clock::now();
  while (!(Holdings() == before)) {
    const Holdings now;
    std::string left = std::to_string(now.descriptors - before.descriptors) + " descriptors";
    for (const auto& [name, count] : now.resources) {
      left += ", " + std::to_string(count - before.resources.at(name)) + " " + name;
    }
    Check(std::chrono::steady_clock::now() - begin < kPatience, "left: " + left);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

inline void Impair(const std::string& how) {
  const std::string command = "tc qdisc change dev vec0 root netem limit 100000 " + how;
  Check(std::system(command.c_str()) == 0, command);
}

inline double Seconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace ar_grpc::fabric::verbs::testing

#endif  // TESTS_VERBS_TWO_HOSTS_H_
