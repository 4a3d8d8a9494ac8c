// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Descriptors that a peer has, too, or has passed, and what it may do to them to make this end
// wait.

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <thread>

#include "tests/conformance/shm_support.h"
#include "third_party/ar_grpc/base/reactor.h"

namespace ar_grpc::fabric::testing {
namespace {

// Whatever is on the counters, and though read() and write() would block, this end does not.
void CheckNeverBlocks(Forger& forger, bool can_be_woken) {
  Outcome outcome = Forge(forger);
  const std::unique_ptr<Connection> connection = Value(std::move(outcome.accepted));
  for (const int fd : forger.fds()) {
    Check(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK) == 0, "fcntl");
  }
  forger.bell->Clear();
  Ended ended;
  std::thread([&connection, &forger, done = ended.done()] {
    for (int i = 0; i < 100; ++i) {
      forger.header().bytes[1].reader_armed = 1;
      Check(Value(WriteText(*connection, "x")) == 1, "written");
      forger.header().bytes[1].reader_armed = 1;
      Check(Value(connection->Post(Message())), "posted");
    }
    forger.bell->WakePeer();
    connection->ClearWake();
    Check(!Readable(connection->wake_fd(), 0), "can be cleared");
    connection->ClearWake();
    connection->Close(nullptr);
    Check(Readable(connection->wake_fd(), 0), "its own waiter hears of the end");
    connection->ClearWake();
    Check(!Readable(connection->wake_fd(), 0), "and of that, too");
    done(Status());
  }).detach();
  Check(ended.Ready(kTimeoutMs), "a peer made this end block");
  Check(Readable(forger.bell->fd(), 0) == can_be_woken, "the peer is awake");
}

void APeerCannotBlockAWakeUp() {
  {
    Forger forger;
    CheckNeverBlocks(forger, true);
  }
  {
    Forger forger;  // both counters full, one of them by more than a write can add
    for (const int fd : {forger.wake.get(), forger.peer_wake.get()}) {
      const uint64_t rest = UINT64_MAX - 1 - (uint64_t{1} << 62);
      Check(write(fd, &rest, sizeof(rest)) == sizeof(rest), "written");
      uint64_t one = 1;
      while (write(fd, &one, sizeof(one)) > 0) {
      }
      Check(errno == EAGAIN, "full");
    }
    BellOf(shm::kOldVersion, forger.peer_wake, forger.wake)->WakePeer();
    CheckNeverBlocks(forger, true);
  }
  {
    Forger forger;  // nothing on either: it is never woken, which is its own doing
    forger.wake = Value(NewWakeFd());
    forger.peer_wake = Value(NewWakeFd());
    forger.bell = BellOf(forger.version, forger.wake, forger.peer_wake);
    CheckNeverBlocks(forger, false);
  }
}

// A page that the kernel, too, waits for until it is served.
class SlowPage {
 public:
  // An error where the system lets this user catch no faults of the kernel.
  Status Make() {
    faults_.reset(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK)));
    if (!faults_.valid()) return ErrnoStatus(errno, "userfaultfd");
    uffdio_api api = {};
    api.api = UFFD_API;
    if (ioctl(faults_.get(), UFFDIO_API, &api) != 0) return ErrnoStatus(errno, "UFFDIO_API");
    page_ = Value(Map(-1, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
    uffdio_register all = {};
    all.range = {reinterpret_cast<uintptr_t>(page_.get()), size_};
    all.mode = UFFDIO_REGISTER_MODE_MISSING;
    if (ioctl(faults_.get(), UFFDIO_REGISTER, &all) == 0) return Status();
    return ErrnoStatus(errno, "UFFDIO_REGISTER");
  }
  uint8_t* data() { return page_.get(); }
  bool IsWaitedFor() { return Readable(faults_.get(), kTimeoutMs); }
  void Serve() {
    uffdio_zeropage zero = {};
    zero.range = {reinterpret_cast<uintptr_t>(page_.get()), size_};
    Check(ioctl(faults_.get(), UFFDIO_ZEROPAGE, &zero) == 0, "served");
  }

 private:
  const size_t size_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::shared_ptr<uint8_t> page_;
  UniqueFd faults_;
};

// What a system call of the peer's on the descriptors of both holds while it copies from or to the
// peer's memory, for as long as the peer likes.
void APeersPagesCannotBlockAWakeUp() {
  if (const Status can = SlowPage().Make(); !can.ok()) {
    std::printf("left out: a peer whose pages are slow (%s)\n", can.message().c_str());
    return;
  }
  for (const long call : {SYS_read, SYS_write}) {
    for (const bool its_own : {true, false}) {
      Forger forger;
      Outcome outcome = Forge(forger);
      const std::unique_ptr<Connection> connection = Value(std::move(outcome.accepted));
      const int fd = (its_own ? forger.wake : forger.peer_wake).get();
      SlowPage page;
      CheckOk(page.Make());
      std::thread holder([call, fd, &page] { syscall(call, fd, page.data(), sizeof(uint64_t)); });
      Check(page.IsWaitedFor(), "the peer is in its call");
      Ended ended;
      std::thread ours([&connection, &forger, done = ended.done()] {
        for (int i = 0; i < 100; ++i) {
          forger.header().bytes[1].reader_armed = 1;
          Check(Value(WriteText(*connection, "x")) == 1, "written");
          connection->ClearWake();
        }
        Check(Readable(forger.bell->fd(), 0), "the peer is woken");
        connection->Close(nullptr);
        Check(Readable(connection->wake_fd(), 0), "its own waiter hears of the end");
        done(Status());
      });
      const bool in_time = ended.Ready(kTimeoutMs);
      page.Serve();
      holder.join();
      ours.join();
      Check(in_time, "a peer made this end block");
    }
  }
}

// A TCP connection whose other end reads nothing: close() of this one waits 30 s for it.
struct Lingering {
  UniqueFd end;
  UniqueFd other;
};
Lingering NewLingering() {
  const LoopbackListener listener = ListenOnLoopback(/*backlog=*/1);
  Lingering made;
  made.end.reset(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Check(connect(made.end.get(), reinterpret_cast<const sockaddr*>(&listener.address),
                sizeof(listener.address)) == 0,
        "connected");
  made.other.reset(accept4(listener.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const std::string page(65536, 'x');
  while (send(made.end.get(), page.data(), page.size(), MSG_DONTWAIT) > 0) {
  }
  const linger waits = {1, 30};
  Check(setsockopt(made.end.get(), SOL_SOCKET, SO_LINGER, &waits, sizeof(waits)) == 0, "linger");
  return made;
}

// While `sends` runs the reactor does nothing, and what it passes has no other owner after it.
void AmidTheReactorsSleep(const std::function<void()>& sends) {
  std::promise<void> asleep;
  std::promise<void> sent;
  CheckOk(StartOnReactor([&asleep, done = sent.get_future().share()] {
    asleep.set_value();
    done.wait();
  }));
  asleep.get_future().wait();  // else the reactor may answer a first packet before a second is sent
  sends();
  sent.set_value();
}

void CheckShort(const std::function<void()>& what, int line = __builtin_LINE()) {
  const auto start = std::chrono::steady_clock::now();
  what();
  Check(std::chrono::steady_clock::now() - start < std::chrono::seconds(15), "waited", line);
}

// How long a close takes is up to who passed the descriptor.
void APeerCannotStallByWhatItPasses() {
  const size_t before = OpenFdsAtRest();
  {
    const std::shared_ptr<TokenListener> listener = ListenHere();
    std::vector<UniqueFd> others;
    const auto send = [&others](int socket, const std::string& bytes, std::vector<int> fds,
                                size_t place) {
      Lingering evil = NewLingering();
      fds[place] = evil.end.get();
      CheckOk(shm::SendPacket(socket, bytes, fds));
      others.push_back(std::move(evil.other));
    };
    const auto idle = [] { CheckShort([] { RunOnReactor([] {}); }); };
    for (const bool first : {true, false}) {
      for (const char* const bytes : {"garbage", ""}) {
        AmidTheReactorsSleep([&] {
          const UniqueFd socket = ConnectTo(listener->address());
          // Behind a packet that is received and refused, or in it.
          if (!first) CheckOk(shm::SendPacket(socket.get(), "x", {}));
          send(socket.get(), bytes, {0}, 0);
        });
        idle();
      }
    }
    for (const uint16_t version : {shm::kVersion, shm::kOldVersion}) {
      for (const size_t place : {0, 1, 2}) {
        Forger forger(version);
        Awaited accepted;
        listener->Expect(forger.token, accepted.done());
        AmidTheReactorsSleep([&] {
          const UniqueFd socket = ConnectTo(listener->address());
          send(socket.get(), Encode(forger.request()), forger.fds(), place);
        });
        CheckCode(accepted.Get().status(), StatusCode::kInternal);
        idle();
      }
    }
    Forger forger;
    Outcome outcome = Forge(forger);
    auto connection = Value(std::move(outcome.accepted));
    send(outcome.socket.get(), "announces nothing", {0}, 0);
    send(outcome.socket.get(), "behind it", {0}, 0);
    uint8_t byte;
    CheckShort([&] {
      Check(!GetNow(*connection, std::string(24, '\1'), 0, &byte, 1).ok(), "nothing to get");
    });
    CheckShort([&] { connection.reset(); });
    AttachTo(*listener);
    others.clear();  // which ends the waiting
  }
  CheckNoFdLeaks(before);
}

// A process listens at its first handshake.
void AReactorThatStandsStillDelaysNoListener() {
  std::promise<void> goes_on;
  CheckOk(StartOnReactor([&goes_on] { goes_on.get_future().wait(); }));
  Ended ended;
  std::shared_ptr<TokenListener> listener;
  std::thread([&listener, done = ended.done()] {
    listener = ListenHere();
    done(Status());
  }).detach();
  const bool in_time = ended.Ready(kTimeoutMs);
  goes_on.set_value();
  Check(in_time, "it listens meanwhile");
  AttachTo(*listener);
}

}  // namespace

std::vector<Case> ShmStallCases() {
  return {
      {"a peer cannot block a wake-up", APeerCannotBlockAWakeUp},
      {"a peer's pages cannot block a wake-up", APeersPagesCannotBlockAWakeUp},
      {"a peer cannot stall by what it passes", APeerCannotStallByWhatItPasses},
      {"a reactor that stands still delays no listener", AReactorThatStandsStillDelaysNoListener},
  };
}

}  // namespace ar_grpc::fabric::testing
