// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string_view>
#include <utility>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/fabric/shm/place.h"

namespace ar_grpc::fabric::shm {
namespace {

constexpr std::string_view kPrefix = "ar-grpc.";
constexpr std::string_view kListening = ".sock";
// A path has this ending until it listens, lest another process's sweep takes it for a stale one.
constexpr std::string_view kStarting = ".new";
constexpr time_t kStartingSeconds = 60;
constexpr std::string_view kHex = "0123456789abcdef";
constexpr size_t kHexDigits = 32;
// So many of a file's digits are the boot id's first, and the others random. A name is neither
// longer for that nor of another shape, since a peer of an older release takes no other.
constexpr size_t kBootDigits = 16;
constexpr int kBacklog = 128;

bool EndsWith(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// What tells this host's files from another's. Empty where the system does not say.
std::string BootDigits() {
  std::string digits = ThisPlace().boot_id;
  digits.erase(std::remove(digits.begin(), digits.end(), '-'), digits.end());
  digits.resize(std::min(digits.size(), kBootDigits));
  const bool whole =
      digits.size() == kBootDigits && digits.find_first_not_of(kHex) == std::string::npos;
  return whole ? digits : "";
}

// Whether `text` is the prefix and the digits, whatever they say; returns what follows them.
bool TakeName(std::string_view* text) {
  if (text->substr(0, kPrefix.size()) != kPrefix) return false;
  text->remove_prefix(kPrefix.size());
  const std::string_view digits = text->substr(0, kHexDigits);
  if (digits.size() != kHexDigits || digits.find_first_not_of(kHex) != std::string_view::npos) {
    return false;
  }
  text->remove_prefix(kHexDigits);
  return true;
}

// ar-grpc.<digits>.<pid><ending>
bool IsOurFile(std::string_view file, std::string_view ending) {
  if (!EndsWith(file, ending)) return false;
  file.remove_suffix(ending.size());
  if (!TakeName(&file) || file.size() < 2 || file.front() != '.') return false;
  return file.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

struct SocketName {
  sockaddr_un address = {};
  socklen_t length = 0;
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// `text` is `@name` or a path.
StatusOr<SocketName> NameOf(const std::string& text) {
  SocketName name;
  name.address.sun_family = AF_UNIX;
  if (text.size() >= sizeof(name.address.sun_path)) {
    return Status(StatusCode::kInvalidArgument, "too long for a socket's path: " + text +
                                                    " (set AR_GRPC_SHM_DIR to a shorter one)");
  }
  std::memcpy(name.address.sun_path, text.data(), text.size());
  name.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  if (text.front() == '@') {
    name.address.sun_path[0] = '\0';
  } else {
    ++name.length;  // the path's final zero
  }
  return name;
}

StatusOr<UniqueFd> NewSocket() {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  return fd;
}

StatusOr<UniqueFd> BindSocket(const std::string& text) {
  StatusOr<SocketName> name = NameOf(text);
  if (!name.ok()) return name.status();
  StatusOr<UniqueFd> fd = NewSocket();
  if (!fd.ok()) return fd.status();
  if (bind(fd->get(), name->get(), name->length) != 0) return ErrnoStatus(errno, "bind to " + text);
  return fd;
}

StatusOr<UniqueFd> ListenAtPath(const std::string& path) {
  // The name that it starts with is shorter.
  if (const StatusOr<SocketName> name = NameOf(path); !name.ok()) return name.status();
  const std::string starting = path.substr(0, path.size() - kListening.size()) + kStarting.data();
  StatusOr<UniqueFd> fd = BindSocket(starting);
  if (!fd.ok()) return fd.status();
  if (chmod(starting.c_str(), 0600) == 0 && listen(fd->get(), kBacklog) == 0 &&
      rename(starting.c_str(), path.c_str()) == 0) {
    return fd;
  }
  Status status = ErrnoStatus(errno, "listening at " + path);
  unlink(starting.c_str());
  return status;
}

}  // namespace

StatusOr<std::unique_ptr<MeetingSockets>> MeetingSockets::Listen(const std::string& directory) {
  std::unique_ptr<MeetingSockets> listening(new MeetingSockets);
  const std::string name = std::string(kPrefix) + RandomHex();
  listening->address_ = "@" + name;
  StatusOr<UniqueFd> fd = BindSocket(listening->address_);
  if (!fd.ok()) return fd.status();
  if (listen(fd->get(), kBacklog) != 0) return ErrnoStatus(errno, "listen");
  listening->sockets_.push_back(std::move(*fd));
  if (directory.empty()) return listening;

  SweepStaleSockets(directory);
  std::string file = name;
  const std::string boot = BootDigits();
  file.replace(kPrefix.size(), boot.size(), boot);
  const std::string path =
      directory + "/" + file + "." + std::to_string(getpid()) + std::string(kListening);
  const bool usable = directory.front() == '/' && directory.find(',') == std::string::npos;
  StatusOr<UniqueFd> path_fd =
      usable ? ListenAtPath(path)
             : Status(StatusCode::kInvalidArgument, "not an absolute path without a comma");
  if (!path_fd.ok()) {
    Log(Severity::kError, "AR_GRPC_SHM_DIR=" + directory +
                              " cannot be used, so a process in another network "
                              "namespace stays on tcp: " +
                              path_fd.status().message());
    return listening;
  }
  listening->path_ = path;
  listening->address_ += "," + path;
  listening->sockets_.push_back(std::move(*path_fd));
  return listening;
}

MeetingSockets::~MeetingSockets() {
  if (!path_.empty() && ForkCount() == fork_count_) unlink(path_.c_str());
}

StatusOr<std::vector<std::string>> ParseAddress(const std::string& address) {
  std::vector<std::string> single;
  size_t start = 0;
  while (start <= address.size()) {
    const size_t end = std::min(address.find(',', start), address.size());
    single.push_back(address.substr(start, end - start));
    start = end + 1;
    std::string_view text = single.back();
    if (text.substr(0, 1) == "@") {
      text.remove_prefix(1);
      if (TakeName(&text) && text.empty()) continue;
    } else if (text.substr(0, 1) == "/") {
      if (IsOurFile(text.substr(text.rfind('/') + 1), kListening)) continue;
    }
    return Status(StatusCode::kInvalidArgument, "not a shared-memory address: " + address);
  }
  return single;
}

std::vector<std::string> AddressesHere(const std::vector<std::string>& single_addresses,
                                       const std::string& directory) {
  std::vector<std::string> here;
  for (const std::string& address : single_addresses) {
    if (address.front() == '@') {
      here.push_back(address);
    } else if (!directory.empty() && directory.front() == '/') {
      here.push_back(directory + address.substr(address.rfind('/')));
    }
  }
  return here;
}

StatusOr<UniqueFd> ConnectSocket(const std::string& single_address) {
  StatusOr<SocketName> name = NameOf(single_address);
  if (!name.ok()) return name.status();
  StatusOr<UniqueFd> fd = NewSocket();
  if (!fd.ok()) return fd.status();
  if (connect(fd->get(), name->get(), name->length) != 0) {
    const int error = errno;
    if (error == EAGAIN) return Status(StatusCode::kAborted, single_address + " is busy");
    Status status = ErrnoStatus(error, "connecting to " + single_address);
    if (error != ENOENT) return status;
    // The peer listened there before it said so: what is not there now will not be there later.
    return Status(StatusCode::kNotFound,
                  status.message() + " (AR_GRPC_SHM_DIR must name the same folder at both ends)");
  }
  return fd;
}

void SweepStaleSockets(const std::string& directory) {
  const std::string boot = BootDigits();
  if (boot.empty()) return;
  const std::string of_this_host = std::string(kPrefix) + boot;
  DIR* const opened = opendir(directory.c_str());
  if (opened == nullptr) return;
  while (const dirent* const entry = readdir(opened)) {
    if (std::string_view(entry->d_name).substr(0, of_this_host.size()) != of_this_host) continue;
    const bool starting = IsOurFile(entry->d_name, kStarting);
    if (!starting && !IsOurFile(entry->d_name, kListening)) continue;
    const std::string path = directory + "/" + entry->d_name;
    struct stat file = {};
    if (lstat(path.c_str(), &file) != 0 || !S_ISSOCK(file.st_mode) || file.st_uid != geteuid()) {
      continue;
    }
    if (starting && time(nullptr) - file.st_mtime < kStartingSeconds) continue;
    const StatusOr<SocketName> name = NameOf(path);
    const StatusOr<UniqueFd> fd = NewSocket();
    if (!name.ok() || !fd.ok()) continue;
    // A process's id says nothing here, the other may live in another container.
    if (connect(fd->get(), name->get(), name->length) != 0 && errno == ECONNREFUSED) {
      unlink(path.c_str());
    }
  }
  closedir(opened);
}

}  // namespace ar_grpc::fabric::shm
