// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/late_hellos.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/protocol/hello.h"

namespace ar_grpc::protocol {

void LateHellos::Found(const std::string& host, Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mu_);
  if (found_.size() >= kMost && found_.count(host) == 0) {
    found_.erase(std::min_element(found_.begin(), found_.end(), [](const auto& a, const auto& b) {
      return a.second.last < b.second.last;
    }));
  }
  Hellos& hellos = found_[host];
  ++hellos.count;
  hellos.last = now;
}

bool LateHellos::TakeOne(const std::string& host, Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = found_.find(host);
  if (found == found_.end()) return false;
  const bool fresh = now < found->second.last + kRemembered;
  if (!fresh || --found->second.count == 0) found_.erase(found);
  return fresh;
}

bool HoldsLateHello(int fd, std::chrono::milliseconds deadline) {
  // A little less: the kernel counts in ticks, and a hello travels.
  const auto unread = SinceLastData(fd);
  if (!unread.has_value() || *unread < deadline * 9 / 10) return false;
  std::array<char, kMagic.size()> begin;
  const ssize_t size = recv(fd, begin.data(), begin.size(), MSG_PEEK | MSG_DONTWAIT);
  return size == static_cast<ssize_t>(begin.size()) &&
         std::string_view(begin.data(), begin.size()) == kMagic;
}

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace ar_grpc::protocol
