// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What is shm's alone: peers that lie, die, stop or are short of descriptors; forks; files. Exits 0
// when all of it holds. Peers in other processes are this program again, with a role.

#include "third_party/ar_grpc/fabric/shm/shm.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <thread>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/ring_connection.h"
#include "third_party/ar_grpc/fabric/shm/attach.h"
#include "third_party/ar_grpc/fabric/shm/meeting_socket.h"
#include "third_party/ar_grpc/fabric/shm/memory.h"

namespace ar_grpc::fabric::testing {
namespace {

using shm::Answer;
using shm::Packet;
using shm::Request;

constexpr size_t kRegionSize = size_t{1} << 20;

std::string self_path;  // this program

size_t OpenFds() {
  RunOnReactor([] {});  // what its callbacks hold is closed as they end
  size_t count = 0;
  DIR* const directory = opendir("/proc/self/fd");
  while (readdir(directory) != nullptr) ++count;
  closedir(directory);
  return count;
}

// A peer's descriptors go when the reactor hears that it has gone.
void CheckNoFdLeaks(size_t before, int line = __builtin_LINE()) {
  for (int i = 0; i < 100 && OpenFds() > before; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  Check(OpenFds() == before,
        std::to_string(OpenFds()) + " descriptors, before " + std::to_string(before), line);
}

UniqueFd ConnectTo(const Listener& listener) {
  return Value(shm::ConnectSocket(Value(shm::ParseAddress(listener.address()))[0]));
}

Packet Await(int socket) {
  Check(Readable(socket, kTimeoutMs), "no packet in time");
  std::optional<Packet> packet = Value(shm::ReceivePacket(socket));
  Check(packet.has_value(), "a packet");
  return std::move(*packet);
}

bool HungUp(int socket, int timeout_ms) {
  if (!Readable(socket, timeout_ms)) return false;
  char byte;
  return recv(socket, &byte, 1, MSG_DONTWAIT) == 0;
}

// A connector made by hand, to say what no honest one would.
struct Forger {
  Token token = NewToken();
  size_t ring_bytes = kRingBytes;
  shm::SharedMemory memory = Value(shm::CreateShared(ConnectionBytes(kRingBytes)));
  UniqueFd wake = Value(NewWakeFd());
  UniqueFd peer_wake = Value(NewWakeFd());

  ConnectionHeader& header() { return *reinterpret_cast<ConnectionHeader*>(memory.data.get()); }
  Request request() {
    Request request;
    request.token = token;
    request.ring_bytes = ring_bytes;
    return request;
  }
  std::vector<int> fds() { return {memory.fd.get(), wake.get(), peer_wake.get()}; }
};

struct Outcome {
  MaybeConnection accepted;
  StatusOr<Answer> answer;
  std::vector<UniqueFd> fds;
};

Outcome Forge(const Token& token, const std::string& bytes, const std::vector<int>& fds) {
  const std::unique_ptr<Listener> listener = Value(shm::Get().Listen());
  Awaited accepted;
  listener->Expect(token, accepted.done());
  const UniqueFd socket = ConnectTo(*listener);
  CheckOk(shm::SendPacket(socket.get(), bytes, fds));
  Packet packet = Await(socket.get());
  Check(HungUp(socket.get(), kTimeoutMs), "the acceptor closes after its answer");
  const Status none(StatusCode::kNotFound, "not called");
  RunOnReactor([] {});
  return {accepted.Ready(0) ? accepted.Get() : MaybeConnection(none),
          shm::DecodeAnswer(packet.bytes), std::move(packet.fds)};
}

Outcome Forge(Forger& forger, const Request& request, const std::vector<int>& fds) {
  return Forge(forger.token, Encode(request), fds);
}

void CheckRefused(const Outcome& outcome, StatusCode code, const std::string& text,
                  int line = __builtin_LINE()) {
  CheckOk(outcome.answer.status(), line);
  const Answer& answer = *outcome.answer;
  CheckCode(answer.status, code, text, line);
  CheckCode(outcome.accepted.status(), code, text, line);
}

void AnHonestForgerIsAccepted() {
  Forger forger;
  Outcome outcome = Forge(forger, forger.request(), forger.fds());
  CheckOk(outcome.answer.status());
  Check(outcome.accepted.ok() && outcome.answer->status.ok() && outcome.fds.empty(), "accepted");
}

// The connector may tell the acceptor, on another way, that it is connected: it must know by then.
void TheAcceptorIsToldFirst() {
  const std::unique_ptr<Listener> listener = Value(shm::Get().Listen());
  Forger forger;
  std::atomic<bool> told{false};
  listener->Expect(forger.token, [&told](MaybeConnection) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    told = true;
  });
  const UniqueFd socket = ConnectTo(*listener);
  CheckOk(shm::SendPacket(socket.get(), Encode(forger.request()), forger.fds()));
  Await(socket.get());
  Check(told, "the answer came before the acceptor's callback had run");
}

void LyingCountersAreCaught() {
  const std::vector<std::pair<const char*, std::function<Status(Forger&, Connection&)>>> lies = {
      {"the peer's write counter",
       [](Forger& forger, Connection& connection) {
         forger.header().bytes[0].written = kRingBytes + 1;
         return ReadText(connection, 100).status();
       }},
      {"the peer's write counter",
       [](Forger& forger, Connection& connection) {
         forger.header().bytes[0].written = UINT64_MAX;
         return connection.Readable().status();
       }},
      {"the peer's write counter",
       [](Forger& forger, Connection& connection) {
         forger.header().bytes[0].written = 100;
         Check(Value(ReadText(connection, 60)).size() == 60, "read");
         forger.header().bytes[0].written = 50;
         return ReadText(connection, 60).status();
       }},
      {"the peer's read counter",
       [](Forger& forger, Connection& connection) {
         forger.header().bytes[1].consumed = uint64_t{1} << 40;
         while (true) {
           const StatusOr<size_t> wrote = WriteText(connection, std::string(99999, 'x'));
           if (!wrote.ok()) return wrote.status();
         }
       }},
      {"the peer's read counter",
       [](Forger& forger, Connection& connection) {
         while (Value(WriteText(connection, std::string(99999, 'x'))) > 0) {
         }
         forger.header().bytes[1].consumed = kRingBytes + 1;
         return connection.ArmWrite().status();
       }},
      {"a part of a message",
       [](Forger& forger, Connection& connection) {
         forger.header().messages[0].written = Message::kSize - 1;
         Message message;
         return connection.Take(&message).status();
       }},
      {"the peer's write counter",
       [](Forger& forger, Connection& connection) {
         forger.header().messages[0].written = kMessageBytes + Message::kSize;
         return connection.ArmRead().status();
       }},
      {"the peer's read counter",
       [](Forger& forger, Connection& connection) {
         forger.header().messages[1].consumed = kMessageBytes + 1;
         while (true) {
           const StatusOr<bool> posted = connection.Post(Message{});
           if (!posted.ok()) return posted.status();
         }
       }},
  };
  for (const auto& [text, lie] : lies) {
    Forger forger;
    Outcome outcome = Forge(forger, forger.request(), forger.fds());
    const std::unique_ptr<Connection> connection = Value(std::move(outcome.accepted));
    CheckCode(lie(forger, *connection), StatusCode::kInternal, text);
    uint8_t byte;
    Message message;
    Check(connection->closed() && forger.header().closed[1] == 1, "closed");
    Check(Readable(forger.wake.get(), 0), "the liar is told");
    for (const Status& status :
         {WriteText(*connection, "x").status(), ReadText(*connection, 1).status(),
          connection->Readable().status(), connection->Post(message).status(),
          connection->Take(&message).status(), connection->ArmRead().status(),
          connection->ArmWrite().status(), GetNow(*connection, 0, &byte, 1)}) {
      CheckCode(status, StatusCode::kInternal, text);
    }
  }
}

UniqueFd Unsealed(size_t size) {
  UniqueFd fd(memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  Check(ftruncate(fd.get(), static_cast<off_t>(size)) == 0, "ftruncate");
  return fd;
}

void WrongMemoryIsRefused() {
  const size_t before = OpenFds();
  {
    Forger forger;
    const UniqueFd unsealed = Unsealed(ConnectionBytes(kRingBytes));
    CheckRefused(Forge(forger, forger.request(),
                       {unsealed.get(), forger.wake.get(), forger.peer_wake.get()}),
                 StatusCode::kInternal, "not sealed");
  }
  {
    Forger forger;
    forger.memory = Value(shm::CreateShared(4096));
    CheckRefused(Forge(forger, forger.request(), forger.fds()), StatusCode::kInternal,
                 "has 4096 bytes");
  }
  {
    Forger forger;
    UniqueFd pipes[2];
    int fds[2];
    Check(pipe2(fds, O_CLOEXEC) == 0, "pipe");
    pipes[0].reset(fds[0]);
    pipes[1].reset(fds[1]);
    CheckRefused(
        Forge(forger, forger.request(), {fds[0], forger.wake.get(), forger.peer_wake.get()}),
        StatusCode::kInternal, "not sealed");
  }
  for (const uint64_t ring_bytes : {uint64_t{0}, uint64_t{1}, uint64_t{kRingBytes} - 1,
                                    uint64_t{kRingBytes} * 3, uint64_t{1} << 40, UINT64_MAX}) {
    Forger forger;
    forger.ring_bytes = ring_bytes;
    CheckRefused(Forge(forger, forger.request(), forger.fds()), StatusCode::kInvalidArgument,
                 "no ring has");
  }
  {
    Forger forger;
    forger.ring_bytes = 2 * kRingBytes;
    CheckRefused(Forge(forger, forger.request(), forger.fds()), StatusCode::kInternal, "stated");
  }
  CheckNoFdLeaks(before);
}

void WrongRegionIsRefused() {
  const size_t before = OpenFds();
  const auto forge = [](int region, uint64_t stated, StatusCode code, const std::string& text) {
    Forger forger;
    Request request = forger.request();
    request.region_bytes = stated;
    std::vector<int> fds = forger.fds();
    fds.push_back(region);
    CheckRefused(Forge(forger, request, fds), code, text);
  };
  const shm::SharedMemory region = Value(shm::CreateShared(kRegionSize));
  forge(region.fd.get(), kRegionSize + 1, StatusCode::kInternal, "where it stated");
  forge(region.fd.get(), 2 * kRegionSize, StatusCode::kInternal, "where it stated");
  forge(region.fd.get(), UINT64_MAX, StatusCode::kInternal, "where it stated");
  forge(region.fd.get(), 0, StatusCode::kInvalidArgument, "4 descriptors");
  forge(Unsealed(kRegionSize).get(), kRegionSize, StatusCode::kInternal, "not sealed");
  CheckNoFdLeaks(before + 1);  // the region's own
}

void WrongDescriptorsAreRefused() {
  const size_t before = OpenFds();
  for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{4}, size_t{200}}) {
    Forger forger;
    std::vector<int> fds = forger.fds();
    fds.resize(count, forger.wake.get());
    CheckRefused(Forge(forger, forger.request(), fds), StatusCode::kInvalidArgument,
                 std::to_string(count) + " descriptors");
  }
  for (const int place : {1, 2}) {
    Forger forger;
    std::vector<int> fds = forger.fds();
    const UniqueFd other(open("/dev/null", O_RDWR | O_CLOEXEC));
    fds[place] = other.get();
    CheckRefused(Forge(forger, forger.request(), fds), StatusCode::kInternal,
                 "something else than an eventfd");
  }
  {
    // One that blocks: the acceptor makes sure that it does not.
    Forger forger;
    Check(fcntl(forger.wake.get(), F_SETFL, 0) == 0, "fcntl");
    Outcome outcome = Forge(forger, forger.request(), forger.fds());
    CheckOk(outcome.accepted.status());
    Check((fcntl(forger.wake.get(), F_GETFL) & O_NONBLOCK) != 0, "does not block");
  }
  CheckNoFdLeaks(before);
}

void GarbageIsRefused() {
  const size_t before = OpenFds();
  const auto forge = [](std::string bytes, StatusCode code, const std::string& text) {
    Forger forger;
    const Outcome outcome = Forge(forger.token, bytes, forger.fds());
    CheckOk(outcome.answer.status());
    CheckCode(outcome.answer->status, code, text);
    CheckCode(outcome.accepted.status(), StatusCode::kNotFound);  // the token is not used up
  };
  const std::string good = shm::Encode(Forger().request());
  for (size_t size = 1; size < good.size(); ++size) {
    forge(good.substr(0, size), StatusCode::kInvalidArgument, "attach packet");
  }
  forge(good + "x", StatusCode::kInvalidArgument, "wrong length");
  forge(std::string(1000, '\xff'), StatusCode::kInvalidArgument, "not a shared-memory");
  forge(std::string(100000, '\xff'), StatusCode::kInvalidArgument, "wrong length");
  std::string later = good;
  ++later[4];
  forge(later, StatusCode::kUnimplemented, "version 2");
  forge(good, StatusCode::kPermissionDenied, "unknown token");
  for (size_t size = 0; size < 18; ++size) {
    Check(!shm::DecodeAnswer(shm::Encode(Answer()).substr(0, size)).ok(), "too short");
  }
  Answer unknown;
  unknown.status = Status(static_cast<StatusCode>(99), "why");
  CheckCode(shm::DecodeAnswer(shm::Encode(unknown))->status, StatusCode::kInternal, "why");
  CheckNoFdLeaks(before);
}

// A listener made by hand, whose answer is `bytes` and `fds`.
Status ConnectToForgedListener(const std::string& bytes, const std::vector<int>& fds) {
  auto listening = Value(shm::MeetingSockets::Listen(""));
  Awaited connected;
  CheckOk(shm::Get().Connect(listening->address(), NewToken(), kTimeoutMs, connected.done()));
  Check(Readable(listening->sockets()[0].get(), kTimeoutMs), "it connects");
  const UniqueFd socket(accept4(listening->sockets()[0].get(), nullptr, nullptr, SOCK_CLOEXEC));
  const Packet request = Await(socket.get());
  CheckOk(shm::DecodeRequest(request.bytes).status());
  CheckOk(shm::SendPacket(socket.get(), bytes, fds));
  return connected.Get().status();
}

void AForgedAnswerIsRefused() {
  const size_t before = OpenFds();
  const UniqueFd wake = Value(NewWakeFd());
  const shm::SharedMemory small = Value(shm::CreateShared(4096));
  Answer answer;
  CheckOk(ConnectToForgedListener(Encode(answer), {}));
  CheckCode(ConnectToForgedListener(Encode(answer), {wake.get()}), StatusCode::kInvalidArgument);
  CheckCode(ConnectToForgedListener("garbage", {}), StatusCode::kInvalidArgument);
  answer.region_bytes = kRegionSize;
  CheckCode(ConnectToForgedListener(Encode(answer), {}), StatusCode::kInvalidArgument);
  CheckCode(ConnectToForgedListener(Encode(answer), {wake.get()}), StatusCode::kInternal, "sealed");
  CheckCode(ConnectToForgedListener(Encode(answer), {small.fd.get()}), StatusCode::kInternal);
  answer.status = Status(StatusCode::kResourceExhausted, std::string(10000, 'w'));
  CheckCode(ConnectToForgedListener(Encode(answer), {}), StatusCode::kResourceExhausted, "www");
  CheckNoFdLeaks(before + 2);  // `wake` and `small`
}

void APeerCannotWriteARegion() {
  const std::shared_ptr<Region> region = Value(shm::Get().Allocate(kRegionSize));
  shm::Get().Offer(region);
  Forger forger;
  const Outcome outcome = Forge(forger, forger.request(), forger.fds());
  shm::Get().Offer(nullptr);
  CheckOk(outcome.answer.status());
  Check(outcome.fds.size() == 1 && outcome.answer->region_bytes == kRegionSize, "offered");
  const int fd = outcome.fds[0].get();
  Check(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED, "no writing");
  void* const seen = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  Check(seen != MAP_FAILED, "reading");
  Check(mprotect(seen, 4096, PROT_READ | PROT_WRITE) != 0, "no writing later either");
  Check(write(fd, "x", 1) < 0 && ftruncate(fd, 0) != 0, "nor through the descriptor");
  Check(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0, "nor holes");
  region->data()[0] = 42;
  Check(*static_cast<volatile uint8_t*>(seen) == 42, "the owner's writes show");
  munmap(seen, 4096);
}

size_t ReadOnlyMappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count +=
        line.find(" r--s ") != std::string::npos && line.find("memfd:ar-grpc") != std::string::npos;
  }
  return count;
}

void ARegionIsMappedOncePerProcess() {
  const std::shared_ptr<Region> region = Value(shm::Get().Allocate(kRegionSize));
  const size_t before = ReadOnlyMappings();
  shm::Get().Offer(region);
  std::optional<Pair> one = Attach(shm::Get());
  std::optional<Pair> two = Attach(shm::Get());
  shm::Get().Offer(nullptr);
  Check(ReadOnlyMappings() == before + 1, "one mapping for four ends");
  one.reset();
  Check(ReadOnlyMappings() == before + 1, "still used");
  two.reset();
  Check(ReadOnlyMappings() == before, "the last one unmaps");
}

int WaitFor(pid_t child) {
  int status = -1;
  Check(waitpid(child, &status, 0) == child, "waitpid");
  return status;
}

void AForkedChildCannotChangeARegion() {
  const std::shared_ptr<Region> region = Value(shm::Get().Allocate(kRegionSize));
  shm::Get().Offer(region);
  std::memset(region->data(), 1, kRegionSize);
  const pid_t child = fork();
  if (child == 0) {
    if (region->Discard(0, 4096).ok()) _exit(2);  // it is the parent's still
    region->MakePrivateAfterFork();
    if (region->data()[0] != 1) _exit(3);
    std::memset(region->data(), 2, kRegionSize);
    if (region->data()[kRegionSize - 1] != 2) _exit(4);
    if (!region->Discard(0, 4096).ok() || region->data()[0] != 0) _exit(5);
    region->data()[0] = 7;
    if (shm::RegionTable::Get().Offered() != nullptr) _exit(6);  // the file is not its memory
    _exit(0);
  }
  Check(WaitFor(child) == 0, "the child has a copy of its own");
  for (size_t i = 0; i < kRegionSize; ++i)
    Check(region->data()[i] == 1, "the parent's is as before");
  Check(shm::RegionTable::Get().Offered() != nullptr, "the parent goes on offering");
  shm::Get().Offer(nullptr);
}

void AForkedChildWithoutACopyCannotWrite() {
  const std::shared_ptr<Region> region = Value(shm::Get().Allocate(kRegionSize));
  region->data()[0] = 1;
  const pid_t child = fork();
  if (child == 0) {
    for (int fd = 3; fd < 1024; ++fd) close(fd);  // so that the copy cannot be made
    signal(SIGSEGV, [](int) { _exit(42); });
    region->MakePrivateAfterFork();
    *static_cast<volatile uint8_t*>(region->data()) = 2;
    _exit(0);
  }
  Check(WEXITSTATUS(WaitFor(child)) == 42, "a fault, no write");
  Check(region->data()[0] == 1, "the parent's is as before");
}

void WithoutMemfdItIsUnavailable() {
  const pid_t child = fork();
  if (child == 0) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program = {std::size(code), code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
      _exit(0);  // a sandbox that allows no other in it
    }
    CheckCode(shm::Get().Available(), StatusCode::kUnimplemented, "memfd_create is refused");
    CheckCode(shm::Get().Allocate(4096).status(), StatusCode::kUnimplemented);
    _exit(0);
  }
  Check(WaitFor(child) == 0, "the status says why");
}

void AForkedChildLeavesConnectionsAlone() {
  std::unique_ptr<Listener> listener = Value(shm::Get().Listen());
  Pair pair = Attach(shm::Get(), *listener);
  const pid_t child = fork();
  if (child == 0) {
    if (WriteText(*pair.connector, "x").status().code() != StatusCode::kFailedPrecondition)
      _exit(2);
    pair.connector->Close();
    pair = Pair();
    listener.reset();
    _exit(0);
  }
  Check(WaitFor(child) == 0, "the child ends well");
  Check(Value(WriteText(*pair.connector, "alive")) == 5, "written");
  Check(Value(ReadText(*pair.acceptor, 5)) == "alive", "read");
  Attach(shm::Get(), *listener);
}

// ThreadSanitizer ends a child that starts threads after a fork of a threaded process.
void AForkedChildMayHaveItsOwn() {
#if !defined(__SANITIZE_THREAD__)
  const Pair before = Attach(shm::Get());
  const pid_t child = fork();
  if (child == 0) {
    const Pair pair = Attach(shm::Get());
    const bool wrote = Value(WriteText(*pair.connector, "child")) == 5;
    _exit(wrote && Value(ReadText(*pair.acceptor, 5)) == "child" ? 0 : 2);
  }
  Check(WaitFor(child) == 0, "the child connects");
#endif
}

void AnotherUserIsRefused() {
  CheckOk(shm::CheckPeerUid(1000, 1000));
  CheckCode(shm::CheckPeerUid(1000, 1001), StatusCode::kPermissionDenied, "user 1000");
  CheckCode(shm::CheckPeerUid(0, 1001), StatusCode::kPermissionDenied);
}

void OddAddressesAreRefused() {
  const std::string hex(32, 'a');
  const std::string name = "@ar-grpc." + hex;
  const std::string path = "/some/where/ar-grpc." + hex + ".12.sock";
  Check(Value(shm::ParseAddress(name + "," + path)).size() == 2, "both");
  for (const std::string& wrong :
       {std::string(), std::string("@"), std::string(","), name + ",", "," + name, name + "a",
        std::string("/run/other.sock"), std::string("/ar-grpc.1.2.sock"), "@" + path,
        "/x/ar-grpc." + hex + ".sock", "/x/ar-grpc." + hex + "..sock",
        "/ar-grpc." + hex + ".12.sock/y", "ar-grpc." + hex + ".12.sock"}) {
    CheckCode(shm::ParseAddress(wrong).status(), StatusCode::kInvalidArgument);
  }
  const std::string unreachable = "/" + std::string(200, 'x') + "/ar-grpc." + hex + ".12.sock";
  CheckCode(ConnectStatus(shm::Get(), unreachable, NewToken()), StatusCode::kInvalidArgument,
            "long");
}

// This program in another process, with a role; killed when it goes.
class Child {
 public:
  explicit Child(std::vector<std::string> arguments, const std::string& directory = "") {
    int out[2];
    Check(pipe2(out, O_CLOEXEC) == 0, "pipe");
    arguments.insert(arguments.begin(), self_path);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      if (!directory.empty()) setenv("AR_GRPC_SHM_DIR", directory.c_str(), 1);
      dup2(out[1], STDOUT_FILENO);
      execv(self_path.c_str(), argv.data());
      _exit(127);
    }
    close(out[1]);
    out_.reset(out[0]);
  }
  ~Child() { End(SIGKILL); }

  // The next line that it prints.
  std::string Line() {
    std::string line;
    for (char byte; Readable(out_.get(), 3 * kTimeoutMs) && read(out_.get(), &byte, 1) == 1;) {
      if (byte == '\n') return line;
      line += byte;
    }
    Check(false, "the child ended after '" + line + "'");
    return line;
  }
  void Stop() {
    int status = 0;
    Check(kill(pid_, SIGSTOP) == 0 && waitpid(pid_, &status, WUNTRACED) == pid_, "stopped");
    Check(WIFSTOPPED(status), "stopped");
  }
  void End(int number) {
    if (pid_ <= 0) return;
    kill(pid_, number);
    WaitFor(pid_);
    pid_ = 0;
  }
  void AwaitEnd() { Check(WaitFor(std::exchange(pid_, 0)) == 0, "the child ends well"); }

 private:
  pid_t pid_ = 0;
  UniqueFd out_;
};

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

Token TokenFrom(const std::string& text) {
  Token token;
  std::copy_n(text.begin(), token.size(), token.begin());
  return token;
}

const std::string kTokenText = "sixteen bytes...";

// Roles: what a child does before it waits to be killed.

void Echo(Connection& connection) {
  std::vector<uint8_t> buffer(70000);
  while (true) {
    const StatusOr<size_t> got = connection.Read(buffer.data(), buffer.size());
    if (!got.ok()) return;
    for (size_t sent = 0; sent < *got;) {
      const iovec part = {buffer.data() + sent, *got - sent};
      const size_t wrote = Value(connection.Write(&part, 1));
      sent += wrote;
      if (wrote == 0 && Value(connection.ArmWrite())) AwaitWake(connection);
    }
    if (*got == 0) {
      const StatusOr<bool> armed = connection.ArmRead();
      if (armed.ok() && *armed) AwaitWake(connection);
    }
  }
}

int RunRole(const std::string& role, const std::string& address) {
  Context& context = shm::Get();
  const Token token = TokenFrom(kTokenText);
  if (role == "listen") {
    const std::unique_ptr<Listener> listener = Value(context.Listen());
    Say(listener->address());
    pause();
  } else if (role == "echo") {
    const std::shared_ptr<Region> region = Value(context.Allocate(kRegionSize));
    std::memset(region->data(), 0x5A, kRegionSize);
    context.Offer(region);
    const std::unique_ptr<Listener> listener = Value(context.Listen());
    Awaited accepted;
    listener->Expect(token, accepted.done());
    Say(listener->address());
    Echo(*Value(accepted.Get()));
  } else if (role == "connects") {
    const UniqueFd socket = Value(shm::ConnectSocket(Value(shm::ParseAddress(address))[0]));
    Say("connected");
    pause();
  } else if (role == "asks") {
    const UniqueFd socket = Value(shm::ConnectSocket(Value(shm::ParseAddress(address))[0]));
    Forger forger;
    forger.token = token;
    CheckOk(shm::SendPacket(socket.get(), shm::Encode(forger.request()), forger.fds()));
    Say("asked");
    pause();
  } else if (role == "attaches") {
    Awaited connected;
    CheckOk(context.Connect(address, token, kTimeoutMs, connected.done()));
    const std::unique_ptr<Connection> connection = Value(connected.Get());
    Say("attached");
    while (WriteText(*connection, "never to be read in full").ok()) {
    }
  }
  return 0;
}

void AnotherProcessEchoes() {
  Child child({"echo"});
  Awaited connected;
  CheckOk(shm::Get().Connect(child.Line(), TokenFrom(kTokenText), kTimeoutMs, connected.done()));
  std::unique_ptr<Connection> connection = Value(connected.Get());
  std::string sent;
  for (int i = 0; i < 3000000 / kSlowdown; ++i) sent += static_cast<char>(i * 7 + i / 251);
  std::string received;
  size_t written = 0;
  while (received.size() < sent.size()) {
    const iovec part = {sent.data() + written, sent.size() - written};
    const size_t wrote = Value(connection->Write(&part, 1));
    const std::string got = Value(ReadText(*connection, 50000));
    written += wrote;
    received += got;
    if (wrote > 0 || !got.empty()) continue;
    if (written < sent.size() && !Value(connection->ArmWrite())) continue;
    if (Value(connection->ArmRead())) AwaitWake(*connection);
  }
  Check(received == sent, "what was sent comes back");
  std::vector<uint8_t> region(kRegionSize);
  Check(connection->remote_size() == kRegionSize, "its region");
  CheckOk(GetNow(*connection, 0, region.data(), kRegionSize));
  Check(std::count(region.begin(), region.end(), 0x5A) == kRegionSize, "its region's bytes");
  connection.reset();
  child.AwaitEnd();
}

void KilledConnectorsAreForgotten() {
  const size_t before = OpenFds();
  {
    const std::unique_ptr<Listener> listener = Value(shm::Get().Listen());
    const Token token = TokenFrom(kTokenText);
    const auto run = [&](const std::string& role) {
      Child child({role, listener->address()});
      child.Line();
      child.End(SIGKILL);
    };
    const size_t listening = OpenFds();
    run("connects");
    CheckNoFdLeaks(listening);
    for (const std::string role : {"asks", "attaches"}) {
      Awaited accepted;
      listener->Expect(token, accepted.done());
      run(role);
      MaybeConnection result = accepted.Get();
      // One that was killed as the answer was sent may be an error, too.
      if (result.ok()) {
        std::unique_ptr<Connection> connection = std::move(*result);
        while (true) {
          const StatusOr<std::string> text = ReadText(*connection, 100000);
          if (!text.ok() || text->empty()) break;
        }
        static_cast<void>(WriteText(*connection, "to nobody").ok());
      }
    }
    CheckNoFdLeaks(listening);
    Attach(shm::Get(), *listener);
  }
  CheckNoFdLeaks(before);
}

void KilledAcceptorsAreNoticed() {
  const size_t before = OpenFds();
  {
    Child child({"listen"});
    const std::string address = child.Line();
    child.Stop();
    Awaited connected;
    CheckOk(shm::Get().Connect(address, NewToken(), kTimeoutMs, connected.done()));
    Check(!connected.Ready(100), "no answer yet");
    child.End(SIGKILL);
    CheckCode(connected.Get().status(), StatusCode::kUnavailable);
    CheckCode(ConnectStatus(shm::Get(), address, NewToken()), StatusCode::kUnavailable);
  }
  {
    Child child({"echo"});
    Awaited connected;
    CheckOk(shm::Get().Connect(child.Line(), TokenFrom(kTokenText), kTimeoutMs, connected.done()));
    const std::unique_ptr<Connection> connection = Value(connected.Get());
    child.End(SIGKILL);
    while (Value(WriteText(*connection, std::string(10000, 'x'))) > 0) {
    }
    std::vector<uint8_t> region(kRegionSize);
    CheckOk(GetNow(*connection, 0, region.data(), kRegionSize));
    Check(region[kRegionSize - 1] == 0x5A, "what is mapped stays, no SIGBUS");
  }
  CheckNoFdLeaks(before);
}

void AStoppedAcceptorMeansADeadline() {
  Child child({"listen"});
  const std::string address = child.Line();
  child.Stop();
  const auto start = std::chrono::steady_clock::now();
  CheckCode(ConnectStatus(shm::Get(), address, NewToken(), 200), StatusCode::kDeadlineExceeded);
  const auto took = std::chrono::steady_clock::now() - start;
  Check(took >= std::chrono::milliseconds(200) && took < std::chrono::seconds(3), "about in time");
  // Also when its queue of connections is full.
  std::vector<UniqueFd> queued;
  const std::string single = Value(shm::ParseAddress(address))[0];
  while (queued.size() < 5000) {
    StatusOr<UniqueFd> socket = shm::ConnectSocket(single);
    if (!socket.ok()) {
      CheckCode(socket.status(), StatusCode::kAborted, "busy");
      break;
    }
    queued.push_back(std::move(*socket));
  }
  CheckCode(ConnectStatus(shm::Get(), address, NewToken(), 200), StatusCode::kDeadlineExceeded);
}

void SilentImpostorsAreClosed() {
  const std::unique_ptr<Listener> listener = Value(shm::Get().Listen());
  std::vector<UniqueFd> impostors;
  for (int i = 0; i < 100; ++i) impostors.push_back(ConnectTo(*listener));
  Attach(shm::Get(), *listener);
  Check(HungUp(impostors[0].get(), 1500), "over the cap the oldest is closed");
  Check(!Readable(impostors[99].get(), 0), "the newest may speak yet");
  Check(HungUp(impostors[99].get(), 5000), "and is closed in the end");
}

void FullDescriptorTablesAreAStatus() {
  const std::unique_ptr<Listener> listener = Value(shm::Get().Listen());
  const std::shared_ptr<Region> region = Value(shm::Get().Allocate(kRegionSize));
  shm::Get().Offer(region);
  Attach(shm::Get(), *listener);
  const size_t before = OpenFds();
  rlimit limit;
  Check(getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  const int next_fd = UniqueFd(dup(STDIN_FILENO)).get();
  bool named = false;
  for (int left = 0; left <= 12; ++left) {
    rlimit low = limit;
    low.rlim_cur = static_cast<rlim_t>(next_fd + left);
    Check(setrlimit(RLIMIT_NOFILE, &low) == 0, "setrlimit");
    const Token token = NewToken();
    {
      Awaited accepted;
      Awaited connected;
      listener->Expect(token, accepted.done());
      CheckOk(shm::Get().Connect(listener->address(), token, 300, connected.done()));
      const MaybeConnection result = connected.Get();
      named |= result.status().message().find("descriptor table full") != std::string::npos;
      if (!result.ok()) {
        const StatusCode code = result.status().code();
        Check(code == StatusCode::kResourceExhausted || code == StatusCode::kDeadlineExceeded ||
                  code == StatusCode::kUnavailable,
              "why not: " + result.status().message());
      }
      listener->Forget(token);
      if (accepted.Ready(0)) static_cast<void>(accepted.Get().ok());
    }
    static_cast<void>(shm::Get().Allocate(4096).ok());
    static_cast<void>(shm::Get().Available().ok());
    static_cast<void>(shm::Get().Listen().ok());
    Check(setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
    CheckNoFdLeaks(before);
  }
  Check(named, "the message names the cause");
  shm::Get().Offer(nullptr);
  Attach(shm::Get(), *listener);
}

void ASmallFileSizeLimitIsAStatus() {
  rlimit limit;
  Check(getrlimit(RLIMIT_FSIZE, &limit) == 0, "getrlimit");
  rlimit low = limit;
  low.rlim_cur = kRegionSize;
  Check(setrlimit(RLIMIT_FSIZE, &low) == 0, "setrlimit");
  const Status large = shm::Get().Allocate(kRegionSize + 1).status();
  const Status fits = shm::Get().Allocate(kRegionSize).status();
  const std::unique_ptr<Listener> listener = Value(shm::Get().Listen());
  const Status connection = ConnectStatus(shm::Get(), listener->address(), NewToken());
  Check(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
  CheckCode(large, StatusCode::kResourceExhausted, "ulimit -f");
  CheckOk(fits);
  CheckCode(connection, StatusCode::kResourceExhausted, "ulimit -f");
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

void PathSocketsAreSwept() {
  std::string directory = std::filesystem::temp_directory_path() / "ar-grpc-test.XXXXXX";
  Check(mkdtemp(directory.data()) != nullptr, "mkdtemp");
  const std::string foreign = directory + "/ar-grpc.not-ours.sock";
  const std::string plain = directory + "/ar-grpc." + std::string(32, '0') + ".1.sock";
  std::ofstream(foreign) << "kept";
  std::ofstream(plain) << "no socket: kept";
  std::string address;
  {
    Child killed({"listen"}, directory);
    address = killed.Line();
    Child lives({"echo"}, directory);
    const std::string alive = lives.Line();
    killed.End(SIGKILL);
    Check(Files(directory).size() == 4, "a killed process leaves its socket");
    setenv("AR_GRPC_SHM_DIR", directory.c_str(), 1);
    const std::unique_ptr<Listener> listener = Value(shm::Get().Listen());
    unsetenv("AR_GRPC_SHM_DIR");
    Check(Files(directory).size() == 4, "which the next to listen removes");
    const std::vector<std::string> addresses = Value(shm::ParseAddress(listener->address()));
    Check(addresses.size() == 2, "a name and a path");
    struct stat file;
    Check(stat(addresses[1].c_str(), &file) == 0 && (file.st_mode & 0777) == 0600, "0600");
    // As from another network namespace, where the name is not known.
    const std::string elsewhere =
        "@ar-grpc." + std::string(32, 'f') + "," + Value(shm::ParseAddress(alive))[1];
    CheckOk(ConnectStatus(shm::Get(), elsewhere, TokenFrom(kTokenText)));
    lives.AwaitEnd();  // which removes its socket
  }
  CheckCode(ConnectStatus(shm::Get(), address, NewToken()), StatusCode::kUnavailable);
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
    setenv("AR_GRPC_SHM_DIR", unusable.c_str(), 1);
    logged.clear();
    const std::string name = Value(shm::Get().Listen())->address();
    Check(name.front() == '@' && name.find(',') == std::string::npos, name.c_str());
    Check(logged.find("AR_GRPC_SHM_DIR=" + unusable) == 0, logged.c_str());
    Check(logged.find(why) != std::string::npos, logged.c_str());
  }
  unsetenv("AR_GRPC_SHM_DIR");
}

}  // namespace
}  // namespace ar_grpc::fabric::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::testing;
  self_path = "/proc/self/exe";
  if (argc > 1) return RunRole(argv[1], argc > 2 ? argv[2] : "");
  // First, before this program has any thread.
  RunAll("shm",
         {
             {"a forked child cannot change a region", AForkedChildCannotChangeARegion},
             {"a forked child without a copy cannot write", AForkedChildWithoutACopyCannotWrite},
             {"without memfd it is unavailable", WithoutMemfdItIsUnavailable},
         });
  RunAll("shm", {
                    {"an honest forger is accepted", AnHonestForgerIsAccepted},
                    {"the acceptor is told first", TheAcceptorIsToldFirst},
                    {"lying counters are caught", LyingCountersAreCaught},
                    {"wrong memory is refused", WrongMemoryIsRefused},
                    {"a wrong region is refused", WrongRegionIsRefused},
                    {"wrong descriptors are refused", WrongDescriptorsAreRefused},
                    {"garbage is refused", GarbageIsRefused},
                    {"a forged answer is refused", AForgedAnswerIsRefused},
                    {"a peer cannot write a region", APeerCannotWriteARegion},
                    {"a region is mapped once per process", ARegionIsMappedOncePerProcess},
                    {"a forked child leaves connections alone", AForkedChildLeavesConnectionsAlone},
                    {"a forked child may have its own", AForkedChildMayHaveItsOwn},
                    {"another user is refused", AnotherUserIsRefused},
                    {"odd addresses are refused", OddAddressesAreRefused},
                    {"another process echoes", AnotherProcessEchoes},
                    {"killed connectors are forgotten", KilledConnectorsAreForgotten},
                    {"killed acceptors are noticed", KilledAcceptorsAreNoticed},
                    {"a stopped acceptor means a deadline", AStoppedAcceptorMeansADeadline},
                    {"silent impostors are closed", SilentImpostorsAreClosed},
                    {"full descriptor tables are a status", FullDescriptorTablesAreAStatus},
                    {"a small file size limit is a status", ASmallFileSizeLimitIsAStatus},
                    {"path sockets are swept", PathSocketsAreSwept},
                });
  return 0;
}
