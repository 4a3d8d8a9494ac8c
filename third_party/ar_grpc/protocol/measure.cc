// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/measure.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/limits.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/thread.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/memory/segment.h"
#include "third_party/ar_grpc/protocol/offers.h"
#include "third_party/ar_grpc/protocol/self_connection.h"

namespace ar_grpc::protocol {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kDeadline = std::chrono::milliseconds(300);
// Bursts of work with sleeps between them, so that what disturbs one is over in another.
constexpr int kBursts = 5;
constexpr int kPauseUs = 1500;
// What is copied from and to, in turns: more than a core's own cache, as tensors are.
constexpr size_t kAreaBytes = size_t{2} << 20;
// A message of several frames, with the frames' headers (RFC 9113, 4.1), and one of next to
// nothing.
constexpr size_t kFrames = 4;
constexpr size_t kLargeBytes = kFrames * kFrameBytes;
constexpr size_t kHeaderBytes = 9;
constexpr size_t kSmallBytes = 64;
constexpr int kWakes = 24;

double Us(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

// Time that passes between its making and Us().
class Watch {
 public:
  double us() const { return Us(Clock::now() - begin_); }

 private:
  const Clock::time_point begin_ = Clock::now();
};

// The least of what was seen, if anything was.
class Least {
 public:
  void Add(double us) { us_ = std::min(us_, us); }
  bool seen() const { return us_ < std::numeric_limits<double>::infinity(); }
  double us() const { return us_; }
  // What the bytes take beside `start`. Never nothing: a clock may stand still.
  double Rate(double bytes, double start) const { return bytes / std::max(us_ - start, 1e-3); }

 private:
  double us_ = std::numeric_limits<double>::infinity();
};

void Pause(int us) {
  const timespec time = {0, us * 1000};
  nanosleep(&time, nullptr);
}

bool Readable(int fd, int timeout_ms) {
  pollfd waits = {fd, POLLIN, 0};
  return poll(&waits, 1, timeout_ms) == 1;
}

// --- the stream, of whatever carries it ---

// One direction of a stream, both of whose ends are this thread's.
class Wire {
 public:
  virtual ~Wire() = default;
  // As fabric::Connection's; -1 for an error.
  virtual int64_t Write(const iovec* parts, int count) = 0;
  virtual int64_t Read(void* into, size_t size) = 0;
  // The receiver's readiness: what its poller waits for, what it does when that has come, and how
  // it asks for more.
  virtual int fd() const = 0;
  virtual void Woken() = 0;
  virtual bool Arm() = 0;
};

struct StreamTimes {
  Least small_send;
  Least small_receive;
  Least plain_send;   // a large message in one piece
  Least framed_send;  // and in frames
  Least framed_receive;
  uint64_t room = 0;
};

// What is sent, and the block that it is read into.
class Messages {
 public:
  // After `deadline` a stream that does not move counts as broken.
  explicit Messages(Clock::time_point deadline)
      : deadline_(deadline), from_(kAreaBytes, 1), block_(kLargeBytes + kFrames * kHeaderBytes) {}

  // false: the stream does not work.
  bool Small(Wire* wire, StreamTimes* times) {
    iovec part = {from_.data(), kSmallBytes};
    double send = 0;
    double receive = 0;
    if (!Pass(wire, &part, 1, kSmallBytes, &send, &receive)) return false;
    times->small_send.Add(send);
    times->small_receive.Add(receive);
    return true;
  }

  bool Large(Wire* wire, StreamTimes* times) {
    const size_t at = at_;
    at_ = (at_ + kLargeBytes) % kAreaBytes;
    double send = 0;
    double receive = 0;
    iovec whole = {from_.data() + at, kLargeBytes};
    if (!Pass(wire, &whole, 1, kLargeBytes, &send, &receive)) return false;
    times->plain_send.Add(send);
    std::array<iovec, 2 * kFrames> framed;
    for (size_t i = 0; i < kFrames; ++i) {
      framed[2 * i] = {header_, kHeaderBytes};
      framed[2 * i + 1] = {from_.data() + at + i * kFrameBytes, kFrameBytes};
    }
    const size_t size = kLargeBytes + kFrames * kHeaderBytes;
    if (!Pass(wire, framed.data(), framed.size(), size, &send, &receive)) return false;
    times->framed_send.Add(send);
    times->framed_receive.Add(receive);
    return true;
  }

  // How much the stream takes before somebody reads.
  bool Fill(Wire* wire, StreamTimes* times) {
    constexpr uint64_t kMost = uint64_t{16} << 20;
    uint64_t room = 0;
    for (;;) {
      iovec part = {from_.data(), kLargeBytes};
      const int64_t wrote = wire->Write(&part, 1);
      if (wrote < 0) return false;
      room += static_cast<uint64_t>(wrote);
      if (wrote == 0 || room > kMost) break;
    }
    times->room = room;
    while (room > 0) {
      if (Clock::now() > deadline_) return false;
      const int64_t read = wire->Read(block_.data(), std::min<uint64_t>(room, block_.size()));
      if (read < 0) return false;
      room -= static_cast<uint64_t>(read);
    }
    wire->Woken();
    return true;
  }

 private:
  // Sends a message and receives it, in turns where it does not fit at once.
  bool Pass(Wire* wire, iovec* parts, int count, size_t size, double* send, double* receive) {
    if (!wire->Arm()) return false;
    *send = *receive = 0;
    size_t sent = 0;
    size_t received = 0;
    while (received < size) {
      if (Clock::now() > deadline_) return false;
      if (sent < size) {
        const Watch watch;
        const int64_t wrote = wire->Write(parts, count);
        *send += watch.us();
        if (wrote < 0) return false;
        sent += static_cast<size_t>(wrote);
        for (size_t left = static_cast<size_t>(wrote); left > 0;) {
          const size_t used = std::min(left, parts->iov_len);
          parts->iov_base = static_cast<uint8_t*>(parts->iov_base) + used;
          parts->iov_len -= used;
          left -= used;
          if (parts->iov_len == 0 && left > 0) ++parts, --count;
        }
        while (count > 0 && parts->iov_len == 0) ++parts, --count;
      }
      const Watch watch;
      Readable(wire->fd(), 0);
      wire->Woken();
      const int64_t read = wire->Read(block_.data() + received, size - received);
      if (read < 0) return false;
      received += static_cast<size_t>(read);
      if (received == size) wire->Arm();
      *receive += watch.us();
    }
    return true;
  }

  const Clock::time_point deadline_;
  std::vector<uint8_t> from_;
  std::vector<uint8_t> block_;
  uint8_t header_[kHeaderBytes] = {};
  size_t at_ = 0;
};

void TakeStream(const StreamTimes& times, Figures* figures) {
  if (!times.framed_receive.seen()) return;
  const double large = static_cast<double>(kLargeBytes);
  figures->send.start_us = times.small_send.us();
  figures->send.operation_us =
      std::max(times.framed_send.us() - times.plain_send.us(), 0.0) / static_cast<double>(kFrames);
  figures->send.bytes_per_us = times.plain_send.Rate(large, times.small_send.us());
  figures->receive.start_us = times.small_receive.us();
  // The frames are among the bytes: they cannot be received without.
  figures->receive.operation_us = 0;
  figures->receive.bytes_per_us = times.framed_receive.Rate(large, times.small_receive.us());
  // The receiver begins when it is woken, by the first of what the sender writes at once; the
  // stream does not run empty while half of its room is full. On one core nothing is done at the
  // same time.
  figures->window_bytes = UsableCores() > 1 ? times.room / 2 : uint64_t{1} << 62;
}

// --- a sleeping thread ---

// `ask` wakes the thread that sleeps in `answer` and waits for its answer; both give up after a
// while, and then return false. The wakes of both and what they do beside are measured together.
void MeasureWakes(const std::function<bool()>& ask, const std::function<bool()>& answer,
                  double work_us, Clock::time_point deadline, Figures* figures) {
  std::atomic<bool> over{false};
  StatusOr<Thread> other = StartThread("ar-grpc measure", [&] {
    while (!over.load(std::memory_order_relaxed)) answer();
  });
  if (!other.ok()) return;
  std::vector<double> rounds;
  for (int i = 0; i < kWakes && Clock::now() < deadline; ++i) {
    Pause(50);  // until the other sleeps
    const Watch watch;
    if (!ask()) break;
    rounds.push_back(watch.us());
  }
  over = true;
  other->Join();
  if (rounds.size() < 4) return;
  // Not the least: that is of a thread that did not sleep yet.
  const auto quarter = rounds.begin() + rounds.size() / 4;
  std::nth_element(rounds.begin(), quarter, rounds.end());
  figures->wake_us = *quarter / 2 - work_us;
}

// How long a thread sleeps before it looks whether the measurement is over.
constexpr int kAnswerMs = 5;

// --- a fabric ---

class FabricWire final : public Wire {
 public:
  FabricWire(fabric::Connection* from, fabric::Connection* to) : from_(from), to_(to) {}
  int64_t Write(const iovec* parts, int count) override {
    const StatusOr<size_t> wrote = from_->Write(parts, count);
    return wrote.ok() ? static_cast<int64_t>(*wrote) : -1;
  }
  int64_t Read(void* into, size_t size) override {
    const StatusOr<size_t> read = to_->Read(into, size);
    return read.ok() ? static_cast<int64_t>(*read) : -1;
  }
  int fd() const override { return to_->wake_fd(); }
  void Woken() override { to_->ClearWake(); }
  bool Arm() override { return to_->ArmRead().ok(); }

 private:
  fabric::Connection* const from_;
  fabric::Connection* const to_;
};

// Reads of memory that the other end exported.
class Reads {
 public:
  Reads(fabric::Connection* connection, fabric::Key key, std::shared_ptr<memory::Segment> target,
        Clock::time_point deadline)
      : connection_(connection),
        key_(std::move(key)),
        target_(std::move(target)),
        deadline_(deadline) {}

  // Starts `count` reads of `size` bytes each, from `part` on, and waits for them; false if one
  // failed, or the deadline passed.
  bool Get(size_t part, int count, size_t size) {
    struct Ended {
      std::atomic<int> good{0};
      std::atomic<int> bad{0};
    };
    // An operation can end later than anybody waits.
    const auto ended = std::make_shared<Ended>();
    for (int i = 0; i < count; ++i) {
      const size_t at = (part + static_cast<size_t>(i)) * kPartBytes % kAreaBytes;
      connection_->Get(
          key_, at, target_->data() + kAreaBytes + at, size, target_,
          [ended](const Status& status) { (status.ok() ? ended->good : ended->bad).fetch_add(1); });
    }
    for (int spins = 0; ended->good.load() + ended->bad.load() < count; ++spins) {
      connection_->Progress();
      if (spins < 100) continue;
      if (Clock::now() > deadline_) return false;
      sched_yield();
    }
    return ended->bad.load() == 0;
  }

 private:
  fabric::Connection* const connection_;
  const fabric::Key key_;
  const std::shared_ptr<memory::Segment> target_;
  const Clock::time_point deadline_;
};

constexpr int kManyReads = 8;
// Each part has its own place, so that threads that copy at the same time write apart.
constexpr int kParts = static_cast<int>(kAreaBytes / kPartBytes);

struct ReadTimes {
  Least one;   // of next to nothing
  Least many;  // kManyReads of them, started together
  Least part;  // of a device
  // kParts parts, by k + 1 threads or k + 1 at a time.
  std::array<Least, kMaxCopiers> parallel;
};

// kParts parts by `threads` threads at the same time, from when all are there to when the last
// ends. Negative where a thread is not to be had, or does not come.
double ParallelReadUs(Reads* reads, int threads) {
  constexpr double kPatienceUs = 2000;
  std::atomic<int> there{0};
  std::atomic<bool> go{false};
  std::atomic<bool> never{false};
  std::atomic<int> next{0};
  std::atomic<bool> failed{false};
  std::vector<Clock::time_point> ends(static_cast<size_t>(threads));
  const auto work = [&](size_t who) {
    for (int part = next++; part < kParts; part = next++) {
      if (!reads->Get(static_cast<size_t>(part), 1, kPartBytes)) failed = true;
    }
    ends[who] = Clock::now();
  };
  Clock::time_point begin;
  {
    std::vector<Thread> helpers;
    for (int who = 1; who < threads; ++who) {
      StatusOr<Thread> helper = StartThread("ar-grpc measure", [&, who] {
        ++there;
        while (!go && !never) sched_yield();
        if (go) work(static_cast<size_t>(who));
      });
      if (!helper.ok()) break;
      helpers.push_back(std::move(*helper));
    }
    const Watch watch;
    while (there < static_cast<int>(helpers.size()) && watch.us() < kPatienceUs) sched_yield();
    if (there < threads - 1) {
      never = true;
      failed = true;
    } else {
      begin = Clock::now();
      go = true;
      work(0);
    }
  }
  return failed ? -1 : Us(*std::max_element(ends.begin(), ends.end()) - begin);
}

void MeasureReads(Reads* reads, bool inline_get, bool parallel, ReadTimes* times) {
  constexpr size_t kNothing = 64;
  for (int i = 0; i < 4; ++i) {
    const Watch one;
    if (reads->Get(0, 1, kNothing)) times->one.Add(one.us());
    const Watch many;
    if (reads->Get(0, kManyReads, kNothing)) times->many.Add(many.us());
    if (inline_get) continue;
    const Watch part;
    if (reads->Get(static_cast<size_t>(i), 1, kPartBytes)) times->part.Add(part.us());
  }
  for (int k = 1; k <= kMaxCopiers && (k == 1 || parallel); ++k) {
    Least& least = times->parallel[static_cast<size_t>(k - 1)];
    if (inline_get) {
      // More threads than cores are only as fast as there are cores.
      if (k > UsableCores()) break;
      const double us = ParallelReadUs(reads, k);
      if (us > 0) least.Add(us);
    } else {
      const Watch watch;
      bool good = true;
      for (int part = 0; part < kParts; part += k) {
        good =
            reads->Get(static_cast<size_t>(part), std::min(k, kParts - part), kPartBytes) && good;
      }
      if (good) least.Add(watch.us());
    }
  }
}

void TakeReads(const ReadTimes& times, Figures* figures) {
  const double all = static_cast<double>(kParts) * kPartBytes;
  const Least& alone = times.parallel[0];
  if (!times.many.seen() || !(alone.seen() || times.part.seen())) return;
  Stage& get = figures->get;
  get.operation_us = std::max(times.many.us() - times.one.us(), 0.0) / (kManyReads - 1);
  get.start_us = std::max(times.one.us() - get.operation_us, 0.0);
  // Copies are measured over all parts, whose bytes no cache of a core holds; a device's reads one
  // by one, since it has the next to do while an end is waited for.
  get.bytes_per_us = times.part.seen()
                         ? times.part.Rate(static_cast<double>(kPartBytes), times.one.us())
                         : alone.Rate(all, kParts * get.operation_us);
  double rate = get.bytes_per_us;
  for (size_t k = 0; k < kMaxCopiers; ++k) {
    const Least& parallel = times.parallel[k];
    if (parallel.seen()) rate = parallel.Rate(all, 0);
    figures->parallel_bytes_per_us[k] = rate;
  }
}

// One message beside the stream, both ends' work; negative for an error.
double MessageUs(fabric::Connection* from, fabric::Connection* to) {
  fabric::Message message;
  if (!to->ArmRead().ok()) return -1;
  const Watch watch;
  const StatusOr<bool> posted = from->Post(message);
  Readable(to->wake_fd(), 0);
  to->ClearWake();
  const StatusOr<bool> took = to->Take(&message);
  const StatusOr<bool> armed = to->ArmRead();
  const double us = watch.us();
  return posted.ok() && *posted && took.ok() && *took && armed.ok() ? us : -1;
}

// Sleeps until a message comes.
bool TakeSleeping(fabric::Connection* end, int timeout_ms) {
  const Watch watch;
  for (;;) {
    const StatusOr<bool> armed = end->ArmRead();
    if (!armed.ok()) return false;
    if (*armed && !Readable(end->wake_fd(), timeout_ms)) return false;
    end->ClearWake();
    fabric::Message message;
    const StatusOr<bool> took = end->Take(&message);
    if (!took.ok() || *took) return took.ok();
    if (watch.us() > 1000.0 * timeout_ms) return false;
  }
}

// --- what belongs to no fabric ---

void MeasureOffers(Least* least) {
  constexpr int kOffers = 16;
  Offers offers;
  const NodeId receiver{};
  offers.AddLink(receiver);
  const Watch watch;
  for (uint64_t ticket = 1; ticket <= kOffers; ++ticket) {
    Offers::Held replaced;
    offers.Hold(receiver, ticket, Offers::Held(), &replaced);
    offers.Release(receiver, ticket);
  }
  least->Add(watch.us() / kOffers);
}

void MeasureCopy(uint8_t* area, Least* least) {
  for (int i = 0; i < 2; ++i) {
    const Watch watch;
    std::memcpy(area + kAreaBytes, area, kAreaBytes);
    least->Add(watch.us());
  }
}

// Of a page, and of all that is exported afterwards.
StatusOr<std::shared_ptr<fabric::Registration>> Register(
    fabric::Context* context, const std::shared_ptr<memory::Segment>& segment, Stage* stage) {
  constexpr size_t kPage = 4096;
  const Watch page;
  const StatusOr<std::shared_ptr<fabric::Registration>> first =
      context->Register(segment, kAreaBytes, kPage, fabric::Access::kRead);
  if (!first.ok()) return first.status();
  stage->start_us = page.us();
  const Watch area;
  StatusOr<std::shared_ptr<fabric::Registration>> all =
      context->Register(segment, 0, kAreaBytes, fabric::Access::kRead);
  stage->operation_us = 0;
  stage->bytes_per_us =
      static_cast<double>(kAreaBytes) / std::max(area.us() - stage->start_us, 1e-3);
  return all;
}

// --- sockets ---

class SocketWire final : public Wire {
 public:
  SocketWire(int from, int to) : from_(from), to_(to) {}
  int64_t Write(const iovec* parts, int count) override {
    msghdr message = {};
    message.msg_iov = const_cast<iovec*>(parts);
    message.msg_iovlen = static_cast<size_t>(count);
    return Moved(sendmsg(from_, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  int64_t Read(void* into, size_t size) override {
    const ssize_t read = recv(to_, into, size, MSG_DONTWAIT);
    return read == 0 ? -1 : Moved(read);
  }
  int fd() const override { return to_; }
  void Woken() override {}
  bool Arm() override { return true; }

 private:
  static int64_t Moved(ssize_t bytes) {
    if (bytes >= 0) return bytes;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? 0 : -1;
  }
  const int from_;
  const int to_;
};

struct SocketPair {
  UniqueFd from;
  UniqueFd to;
};

SocketPair TcpPair() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const name = reinterpret_cast<sockaddr*>(&address);
  SocketPair pair;
  const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  pair.from = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Over the loopback device a connection waits for nobody's accept.
  if (listener.valid() && pair.from.valid() && bind(listener.get(), name, size) == 0 &&
      listen(listener.get(), 1) == 0 && getsockname(listener.get(), name, &size) == 0 &&
      connect(pair.from.get(), name, size) == 0) {
    pair.to = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const int on = 1;
    for (const int fd : {pair.from.get(), pair.to.get()}) {
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    // Who connected here may be anybody; who was accepted must be the other end.
    sockaddr_in own = {};
    sockaddr_in peer = {};
    socklen_t own_size = sizeof(own);
    socklen_t peer_size = sizeof(peer);
    if (getsockname(pair.from.get(), reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
        getpeername(pair.to.get(), reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0 ||
        own.sin_port != peer.sin_port || own.sin_addr.s_addr != peer.sin_addr.s_addr) {
      pair.to.reset();
    }
  }
  if (pair.to.valid()) return pair;
  int both[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, both) != 0) return {};
  return {UniqueFd(both[0]), UniqueFd(both[1])};
}

// One byte, which a sleeping thread waits for.
bool Tell(int fd) { return send(fd, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT) == 1; }
bool Hear(int fd, int timeout_ms) {
  char byte;
  return Readable(fd, timeout_ms) && recv(fd, &byte, 1, MSG_DONTWAIT) == 1;
}

int MsUntil(Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  return static_cast<int>(std::max<int64_t>(left.count(), 0));
}

}  // namespace

StatusOr<Figures> Measure(fabric::Context* context) {
  const Clock::time_point deadline = Clock::now() + kDeadline;
  const fabric::Capabilities can = context->capabilities();
  StatusOr<SelfConnection> ends = ConnectToSelf(context, deadline);
  if (!ends.ok()) return ends.status();
  fabric::Connection* const there = ends->server.get();
  fabric::Connection* const here = ends->client.get();
  StatusOr<std::shared_ptr<memory::Segment>> segment = memory::Segment::Create(2 * kAreaBytes);
  if (!segment.ok()) return segment.status();
  uint8_t* const area = (*segment)->data();
  // A page's first touch is no part of an operation.
  std::memset(area, 1, 2 * kAreaBytes);
  Figures figures = Assumed(context->name());

  std::shared_ptr<fabric::Registration> registration;
  std::unique_ptr<Reads> reads;
  if (can.get) {
    StatusOr<std::shared_ptr<fabric::Registration>> made =
        Register(context, *segment, &figures.registration);
    if (!made.ok()) return made.status();
    registration = std::move(*made);
    StatusOr<fabric::Key> key = there->Export(registration);
    if (!key.ok()) return key.status();
    reads = std::make_unique<Reads>(here, std::move(*key), *segment, deadline);
  }

  FabricWire wire(there, here);
  Messages messages(deadline);
  StreamTimes stream;
  ReadTimes read_times;
  Least message;
  Least offer;
  Least copy;
  bool streams = can.stream && messages.Fill(&wire, &stream);
  for (int burst = 0; burst < kBursts && Clock::now() < deadline; ++burst) {
    if (burst > 0) Pause(kPauseUs);
    for (int i = 0; i < 8 && streams; ++i) {
      streams = messages.Small(&wire, &stream);
      if (const double us = MessageUs(here, there); us >= 0) message.Add(us);
    }
    for (int i = 0; i < 4 && streams; ++i) streams = messages.Large(&wire, &stream);
    MeasureOffers(&offer);
    MeasureCopy(area, &copy);
    // The threads are started in every other burst.
    if (reads) MeasureReads(reads.get(), can.inline_get, burst % 2 == 0, &read_times);
  }
  TakeStream(stream, &figures);
  TakeReads(read_times, &figures);
  if (message.seen()) figures.message_us = message.us();
  if (offer.seen()) figures.offer_us = offer.us();
  if (copy.seen()) figures.copy_bytes_per_us = copy.Rate(static_cast<double>(kAreaBytes), 0);
  if (streams) {
    MeasureWakes(
        [&] {
          const StatusOr<bool> posted = here->Post({});
          return posted.ok() && *posted && TakeSleeping(here, MsUntil(deadline));
        },
        [&] {
          if (!TakeSleeping(there, kAnswerMs)) return false;
          const StatusOr<bool> posted = there->Post({});
          return posted.ok() && *posted;
        },
        figures.message_us, deadline, &figures);
  }
  // The device may still write what was read too late, and the peer reads what was exported.
  here->Close([keep = *segment, registration] {});
  there->Close([keep = *segment, registration] {});
  return Plausible(figures, {can.inline_get && can.stream});
}

Figures MeasureTcp() {
  const Clock::time_point deadline = Clock::now() + kDeadline;
  Figures figures = AssumedTcp();
  const SocketPair pair = TcpPair();
  if (!pair.from.valid() || !pair.to.valid()) return figures;
  SocketWire wire(pair.from.get(), pair.to.get());
  Messages messages(deadline);
  std::vector<uint8_t> area(2 * kAreaBytes, 1);
  StreamTimes stream;
  Least copy;
  Least offer;
  bool streams = messages.Fill(&wire, &stream);
  for (int burst = 0; burst < kBursts && streams && Clock::now() < deadline; ++burst) {
    if (burst > 0) Pause(kPauseUs);
    for (int i = 0; i < 8 && streams; ++i) streams = messages.Small(&wire, &stream);
    for (int i = 0; i < 4 && streams; ++i) streams = messages.Large(&wire, &stream);
    MeasureOffers(&offer);
    MeasureCopy(area.data(), &copy);
  }
  TakeStream(stream, &figures);
  if (offer.seen()) figures.offer_us = offer.us();
  if (copy.seen()) figures.copy_bytes_per_us = copy.Rate(static_cast<double>(kAreaBytes), 0);
  // A release is a message like others.
  figures.message_us = figures.send.start_us + figures.receive.start_us;
  if (streams) {
    MeasureWakes([&] { return Tell(pair.from.get()) && Hear(pair.from.get(), MsUntil(deadline)); },
                 [&] { return Hear(pair.to.get(), kAnswerMs) && Tell(pair.to.get()); },
                 figures.message_us, deadline, &figures);
  }
  return Plausible(figures, {});
}

Figures MeasuredFigures(const std::string& fabric) {
  fabric::Context* const context = fabric::Find(fabric);
  if (context == nullptr) return fabric == fabric::kTcp ? MeasureTcp() : Assumed(fabric);
  const fabric::Capabilities can = context->capabilities();
  const StatusOr<Figures> measured = Measure(context);
  if (!measured.ok()) {
    Log(Severity::kInfo, "no figures of " + fabric + " could be measured (" +
                             measured.status().message() + "); usual ones are assumed");
  }
  const Figures figures = measured.ok() ? *measured : Assumed(fabric);
  return can.stream ? figures : WithStreamOf(figures, MeasureTcp());
}

}  // namespace ar_grpc::protocol
