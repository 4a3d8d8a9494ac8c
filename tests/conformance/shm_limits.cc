// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Limits of the system, files, and where processes are.

#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

#include "tests/common/new_folder.h"
#include "tests/conformance/shm_child.h"
#include "tests/conformance/shm_support.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/fabric/shm/listener.h"
#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"
#include "third_party/ar_grpc/fabric/shm/place.h"
#include "third_party/ar_grpc/fabric/shm/shm.h"
#include "third_party/ar_grpc/protocol/handshake_steps.h"

namespace ar_grpc::fabric::testing {
namespace {

constexpr size_t kSegmentSize = size_t{1} << 20;

void FullDescriptorTablesAreAStatus() {
  const auto segment = Value(memory::Segment::Create(kSegmentSize));
  const auto registration = Value(shm::Get().Register(segment, 0, kSegmentSize, Access::kRead));
  Attach(shm::Get());
  const size_t before = OpenFdsAtRest();
  rlimit limit;
  Check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  bool named = false;
  for (int left = 0; left <= 12; ++left) {
    {
      Pair pair = Attach(shm::Get());
      const int next_fd = UniqueFd(dup(STDIN_FILENO)).get();
      rlimit low = limit;
      low.rlim_cur = static_cast<rlim_t>(next_fd + left);
      Check(setrlimit(RLIMIT_NOFILE, &low) == 0, "setrlimit");
      {
        Introduction introduction(shm::Get(), shm::Get());
        introduction.Run(300);
        for (const int end : {0, 1}) {
          if (!introduction.Done(end)) continue;
          const Status status = introduction.Take(end).status();
          named |= status.message().find("descriptor table full") != std::string::npos;
          Check(status.ok() || status.code() == StatusCode::kResourceExhausted ||
                    status.code() == StatusCode::kUnavailable,
                "why not: " + status.message());
        }
      }
      const StatusOr<Key> key = pair.acceptor->Export(registration);
      uint8_t byte;
      if (key.ok()) {
        const Status got = GetNow(*pair.connector, *key, 0, &byte, 1);
        if (!got.ok()) CheckCode(got, StatusCode::kResourceExhausted, "descriptor table full");
      }
      static_cast<void>(memory::Segment::Create(4096).ok());
      static_cast<void>(shm::Get().Available().ok());
      static_cast<void>(shm::ListenForPeers("").ok());
      static_cast<void>(shm::Get().Brochure().ok());
      Check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    }
    CheckNoFdLeaks(before);
  }
  Check(named, "the message names the cause");
  Attach(shm::Get());
}

void ASmallFileSizeLimitIsAStatus() {
  rlimit limit;
  Check(getrlimit(RLIMIT_FSIZE, &limit) == 0, "getrlimit");
  rlimit low = limit;
  low.rlim_cur = kSegmentSize;
  Check(setrlimit(RLIMIT_FSIZE, &low) == 0, "setrlimit");
  const Status large = memory::Segment::Create(kSegmentSize + 1).status();
  const Status fits = memory::Segment::Create(kSegmentSize).status();
  const std::shared_ptr<TokenListener> listener = ListenHere();
  const Status connection = ConnectNow(FrameFor(listener->address(), NewToken())).status();
  Check(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
  CheckCode(large, StatusCode::kResourceExhausted, "ulimit -f");
  CheckOk(fits);
  CheckCode(connection, StatusCode::kResourceExhausted, "ulimit -f");
}

void SegmentsRefuseNonsense() {
  CheckCode(memory::Segment::Create(0).status(), StatusCode::kInvalidArgument);
  CheckCode(memory::Segment::Create(SIZE_MAX).status(), StatusCode::kResourceExhausted);
  CheckCode(memory::Segment::Create(SIZE_MAX / 2 - 4096).status(), StatusCode::kResourceExhausted);
  const auto one = Value(memory::Segment::Create(5000));
  const auto two = Value(memory::Segment::Create(1));
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  Check(one->size() % page == 0 && one->size() >= 5000 && two->size() == page, "whole pages");
  Check(one->id() != 0 && two->id() != 0 && one->id() != two->id(), "told apart");
  Check(one->OffsetOf(one->data() + 10, 20) == uint64_t{10}, "within");
  Check(one->OffsetOf(one->data() + one->size(), 0) == one->size(), "at the end");
  Check(!one->OffsetOf(one->data() + one->size() - 1, 2) && !one->OffsetOf(one->data() - 1, 1) &&
            !one->OffsetOf(one->data(), SIZE_MAX) && !one->OffsetOf(nullptr, 1),
        "not wholly within");
  CheckCode(one->Discard(0, one->size() + page), StatusCode::kInvalidArgument);
  CheckCode(one->Discard(one->size(), page), StatusCode::kInvalidArgument);
  CheckCode(one->Discard(SIZE_MAX - page + 1, page), StatusCode::kInvalidArgument);
  CheckOk(one->Discard(one->size(), 0));
}

std::vector<std::string> Files(const std::string& directory) {
  std::vector<std::string> files;
  DIR* const opened = opendir(directory.c_str());
  while (const dirent* const entry = readdir(opened)) {
    if (entry->d_name[0] != '.') files.push_back(entry->d_name);
  }
  closedir(opened);
  return files;
}

// What the digits of this host's files begin with.
std::string BootDigits() {
  std::string digits = shm::ThisPlace().boot_id;
  digits.erase(std::remove(digits.begin(), digits.end(), '-'), digits.end());
  digits.resize(16);
  return digits;
}

// The socket of a process that was killed, or, seen from here, of one that lives on another host:
// nobody of this host listens on it. It has begun long ago.
void LeaveSocket(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  Check(path.size() < sizeof(address.sun_path), "fits");
  std::memcpy(address.sun_path, path.data(), path.size());
  const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  Check(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0, "bind");
  const timespec long_ago[2] = {};
  Check(utimensat(AT_FDCWD, path.c_str(), long_ago, 0) == 0, "utimensat");
}

TokenFrame FrameOf(const std::string& line) {
  std::string bytes;
  for (size_t i = 0; i + 1 < line.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(line.substr(i, 2), nullptr, 16));
  }
  return Value(DecodeTokenFrame(bytes));
}

void PathSocketsAreSwept() {
  const std::string directory = ar_grpc::testing::NewFolder();
  const std::string foreign = directory + "/ar-grpc.not-ours.sock";
  const std::string plain =
      directory + "/ar-grpc." + BootDigits() + std::string(16, '0') + ".1.sock";
  std::ofstream(foreign) << "kept";
  std::ofstream(plain) << "no socket: kept";
  std::string address;
  {
    Child killed({"listen", directory});
    address = killed.Line();
    Child lives({"echo"}, directory);
    const TokenFrame alive = FrameOf(lives.Line());
    killed.End(SIGKILL);
    Check(Files(directory).size() == 4, "a killed process leaves its socket");
    const std::shared_ptr<TokenListener> listener = ListenHere(directory);
    Check(Files(directory).size() == 4, "which the next to listen removes");
    const std::vector<std::string> addresses = Value(shm::ParseAddress(listener->address()));
    Check(addresses.size() == 2, "a name and a path");
    struct stat file;
    Check(stat(addresses[1].c_str(), &file) == 0 && (file.st_mode & 0777) == 0600, "0600");
    // As from another network namespace, where the name is not known, and the directory is mounted
    // at another place.
    const std::string socket = Value(shm::ParseAddress(alive.address))[1];
    const std::string elsewhere =
        "@ar-grpc." + std::string(32, 'f') + ",/mounted/there" + socket.substr(socket.rfind('/'));
    CheckCode(ConnectNow(FrameFor(elsewhere, alive.token)).status(), StatusCode::kUnavailable);
    setenv("AR_GRPC_SHM_DIR", directory.c_str(), 1);
    const Status met = ConnectNow(FrameFor(elsewhere, alive.token)).status();
    unsetenv("AR_GRPC_SHM_DIR");
    CheckOk(met);
    lives.AwaitEnd();  // which removes its socket
  }
  CheckCode(ConnectNow(FrameFor(address, NewToken())).status(), StatusCode::kUnavailable);
  shm::SweepStaleSockets(directory);
  Check(Files(directory).size() == 2, "nothing is left but what is not ours");
  unlink(foreign.c_str());
  unlink(plain.c_str());
  Check(rmdir(directory.c_str()) == 0, "rmdir");

  // A directory that cannot be used costs only those who would have come by it.
  static std::string logged;
  SetLogSink([](Severity severity, const std::string& line) {
    Check(severity == Severity::kError, line.c_str());
    logged = line;
  });
  for (const auto& [unusable, why] : std::map<std::string, std::string>{
           {directory, "No such file or directory"},
           {"relative", "not an absolute path"},
           {"/tmp,/var/tmp", "without a comma"},
           {"/" + std::string(100, 'x'), "too long for a socket's path"}}) {
    logged.clear();
    const std::string name = ListenHere(unusable)->address();
    Check(name.front() == '@' && name.find(',') == std::string::npos, name.c_str());
    Check(logged.find("AR_GRPC_SHM_DIR=" + unusable) == 0, logged.c_str());
    Check(logged.find(why) != std::string::npos, logged.c_str());
  }
}

// Hosts may share the directory, and a Unix socket refuses who comes from another host, whether or
// not its process lives.
void OnlySocketsOfThisHostAreSwept() {
  const std::string directory = ar_grpc::testing::NewFolder();
  const std::string boot = BootDigits();
  std::string other = boot;
  other.back() = other.back() == '0' ? '1' : '0';
  const std::string digits(16, 'a');
  const auto named = [&](const std::string& all_digits, const std::string& ending) {
    const std::string name = "ar-grpc." + all_digits + ".1" + ending;
    LeaveSocket(directory + "/" + name);
    return name;
  };
  const std::vector<std::string> dead = {named(boot + digits, ".sock"),
                                         named(boot + digits, ".new")};
  const std::vector<std::string> kept = {named(other + digits, ".sock"),
                                         named(other + digits, ".new"),
                                         // An older release's: all digits are random.
                                         named(std::string(32, 'f'), ".sock")};
  {
    const std::shared_ptr<TokenListener> listener = ListenHere(directory);
    const std::string path = Value(shm::ParseAddress(listener->address()))[1];
    const std::string own = path.substr(path.rfind('/') + 1);
    const std::vector<std::string> files = Files(directory);
    const auto there = [&](const std::string& name) {
      return std::find(files.begin(), files.end(), name) != files.end();
    };
    for (const std::string& name : kept) Check(there(name), "swept: " + name);
    for (const std::string& name : dead) Check(!there(name), "not swept: " + name);
    Check(files.size() == kept.size() + 1 && there(own), "its own");
    Check(own.rfind("ar-grpc." + boot, 0) == 0, "of this host: " + own);
    // An older release takes no other shape for an address.
    const std::string ending = "." + std::to_string(getpid()) + ".sock";
    Check(own.size() == 8 + 32 + ending.size() && own.substr(8 + 32) == ending, own);
    Check(own.find_first_not_of("0123456789abcdef", 8) == 8 + 32, own);
  }
  for (const std::string& name : kept) unlink((directory + "/" + name).c_str());
  Check(rmdir(directory.c_str()) == 0, "nothing else is left");
}

// The longest path that a socket can have has 107 bytes; who listens must not give a longer one.
void APathThatNobodyCouldTryIsNotGiven() {
  const std::string parent = ar_grpc::testing::NewFolder();
  const size_t file =
      ("/ar-grpc." + std::string(32, '0') + "." + std::to_string(getpid()) + ".sock").size();
  static std::string logged;
  SetLogSink([](Severity, const std::string& line) { logged = line; });
  Check(parent.size() + 2 + file <= 107, parent + " is too long a path for this");
  for (const size_t size : {size_t{107}, size_t{108}}) {
    const std::string directory = parent + "/" + std::string(size - file - parent.size() - 1, 'x');
    Check(mkdir(directory.c_str(), 0700) == 0, "mkdir");
    logged.clear();
    {
      const std::shared_ptr<TokenListener> listener = ListenHere(directory);
      const std::vector<std::string> addresses = Value(shm::ParseAddress(listener->address()));
      Check(addresses.size() == (size == 107 ? 2 : 1), listener->address());
      if (size == 107) {
        Check(addresses[1].size() == size && logged.empty(), logged);
        CheckOk(shm::ConnectSocket(addresses[1]).status());
      } else {
        Check(logged.find("too long for a socket's path") != std::string::npos, logged);
      }
    }
    Check(rmdir(directory.c_str()) == 0, "nothing is left");
  }
  SetLogSink([](Severity, const std::string&) {});
  Check(rmdir(parent.c_str()) == 0, "rmdir");
}

// The peer has listened there before it says so: who does not find its file looks elsewhere, and
// will not find it later either.
void AnotherDirectoryThanThePeersLasts() {
  const std::string directory = ar_grpc::testing::NewFolder();
  const std::string another = ar_grpc::testing::NewFolder();
  {
    const std::shared_ptr<TokenListener> listener = ListenHere(directory);
    const std::string path = Value(shm::ParseAddress(listener->address()))[1];
    const std::string file = path.substr(path.rfind('/'));
    const std::string address = "@ar-grpc." + std::string(32, 'f') + "," + path;
    const auto connect_from = [&](const std::string& own) {
      setenv("AR_GRPC_SHM_DIR", own.c_str(), 1);
      const Status status = ConnectNow(FrameFor(address, NewToken())).status();
      unsetenv("AR_GRPC_SHM_DIR");
      return status;
    };
    for (const std::string& own : {another, another + "/missing"}) {
      const Status status = connect_from(own);
      CheckCode(status, StatusCode::kNotFound, own + file);
      CheckCode(status, StatusCode::kNotFound, "must name the same folder at both ends");
      Check(!protocol::IsTransient(status.code()), "it lasts");
    }
    // Of a process that has gone meanwhile: its successor may be met.
    LeaveSocket(another + file);
    const Status refused = connect_from(another);
    CheckCode(refused, StatusCode::kUnavailable, "refused");
    Check(protocol::IsTransient(refused.code()), "it may pass");
    unlink((another + file).c_str());
  }
  Check(rmdir(directory.c_str()) == 0 && rmdir(another.c_str()) == 0, "rmdir");
}

void PlacesSayWhoCanMeet() {
  const shm::Place here = shm::ThisPlace();
  Check(here.boot_id.size() == 36 && here.network.find("net:[") == 0 && here.user == geteuid(),
        "the system tells all");
  Check(Encode(here).size() <= kLargestBrochure, "a brochure's size");
  const shm::Place same = Value(shm::DecodePlace(Encode(here)));
  CheckOk(CanMeet(here, same));
  shm::Place there = same;
  there.boot_id[0] ^= 1;
  CheckCode(CanMeet(here, there), StatusCode::kUnavailable, "another host");
  there.boot_id.clear();
  CheckOk(CanMeet(here, there));  // not told, not compared
  there = same;
  ++there.user;
  CheckCode(CanMeet(here, there), StatusCode::kUnavailable, "runs as user");
  there = same;
  there.network += "1";
  CheckCode(CanMeet(here, there), StatusCode::kUnavailable, "they have no directory");
  there.has_directory = true;
  there.directory = "/shared";
  CheckCode(CanMeet(here, there), StatusCode::kUnavailable, "this process has no directory");
  CheckCode(CanMeet(there, here), StatusCode::kUnavailable, "the peer has no directory");
  shm::Place with = here;
  with.has_directory = true;
  CheckOk(CanMeet(with, there));
  const std::string before = Value(shm::Get().Brochure());
  setenv("AR_GRPC_SHM_DIR", ("/" + std::string(1000, 'x')).c_str(), 1);
  const std::string after = Value(shm::Get().Brochure());
  unsetenv("AR_GRPC_SHM_DIR");
  Check(before != after && after.size() <= kLargestBrochure, "cut");
  CheckOk(shm::Get().Reaches(after));
  there = same;
  there.network = std::string(shm::kLargestPlaceText + 1, 'n');
  CheckCode(shm::DecodePlace(Encode(there)).status(), StatusCode::kInvalidArgument);
}

}  // namespace

std::vector<Case> ShmLimitCases() {
  return {
      {"full descriptor tables are a status", FullDescriptorTablesAreAStatus},
      {"a small file size limit is a status", ASmallFileSizeLimitIsAStatus},
      {"segments refuse nonsense", SegmentsRefuseNonsense},
      {"path sockets are swept", PathSocketsAreSwept},
      {"only sockets of this host are swept", OnlySocketsOfThisHostAreSwept},
      {"a path that nobody could try is not given", APathThatNobodyCouldTryIsNotGiven},
      {"another directory than the peer's lasts", AnotherDirectoryThanThePeersLasts},
      {"places say who can meet", PlacesSayWhoCanMeet},
  };
}

}  // namespace ar_grpc::fabric::testing
