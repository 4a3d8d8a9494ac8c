// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/measure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/thread.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/memory/segment.h"
#include "third_party/ar_grpc/protocol/measure_reads.h"
#include "third_party/ar_grpc/protocol/measure_socket.h"
#include "third_party/ar_grpc/protocol/measure_stream.h"
#include "third_party/ar_grpc/protocol/measure_time.h"
#include "third_party/ar_grpc/protocol/offers.h"
#include "third_party/ar_grpc/protocol/self_connection.h"

namespace ar_grpc::protocol {
namespace {

using measuring::Clock;
using measuring::ConnectedSockets;
using measuring::Hear;
using measuring::kAreaBytes;
using measuring::Least;
using measuring::Messages;
using measuring::MsUntil;
using measuring::Pause;
using measuring::Readable;
using measuring::Reads;
using measuring::ReadTimes;
using measuring::SocketPair;
using measuring::SocketWire;
using measuring::StreamTimes;
using measuring::Tell;
using measuring::Watch;

constexpr auto kDeadline = std::chrono::milliseconds(300);
// Bursts of work with sleeps between them, so that what disturbs one is over in another.
constexpr int kBursts = 5;
constexpr int kPauseUs = 1500;
constexpr int kWakes = 24;

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

class FabricWire final : public measuring::Wire {
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

struct RegistrationTimes {
  Least page;
  Least area;
  double spent_us = 0;
};

StatusOr<std::shared_ptr<fabric::Registration>> TimedRegister(
    fabric::Context* context, const std::shared_ptr<memory::Segment>& segment, uint64_t offset,
    uint64_t size, Least* least) {
  const Watch watch;
  StatusOr<std::shared_ptr<fabric::Registration>> made =
      context->Register(segment, offset, size, fabric::Access::kRead);
  if (made.ok()) least->Add(watch.us());
  return made;
}

// Once more, of memory that stays registered meanwhile.
void MeasureRegistration(fabric::Context* context, const std::shared_ptr<memory::Segment>& segment,
                         RegistrationTimes* times) {
  constexpr size_t kPage = 4096;
  // All of them together, where memory is pinned.
  constexpr double kMostUs = 30000;
  (void)TimedRegister(context, segment, kAreaBytes, kPage, &times->page).ok();
  if (times->spent_us > kMostUs) return;
  const Watch watch;
  (void)TimedRegister(context, segment, 0, kAreaBytes, &times->area).ok();
  times->spent_us += watch.us();
}

void TakeRegistration(const RegistrationTimes& times, Figures* figures) {
  if (!times.page.seen() || !times.area.seen()) return;
  figures->registration = {times.page.us(), 0,
                           times.area.Rate(static_cast<double>(kAreaBytes), times.page.us())};
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
  if (can.stream_window > 0) figures.credit_bytes = can.stream_window;

  std::shared_ptr<fabric::Registration> registration;
  std::unique_ptr<Reads> reads;
  RegistrationTimes registrations;
  if (can.get) {
    StatusOr<std::shared_ptr<fabric::Registration>> made =
        TimedRegister(context, *segment, 0, kAreaBytes, &registrations.area);
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
    if (reads) {
      MeasureReads(reads.get(), can.inline_get, burst % 2 == 0, &read_times);
      MeasureRegistration(context, *segment, &registrations);
    }
  }
  TakeStream(stream, &figures);
  TakeReads(read_times, &figures);
  TakeRegistration(registrations, &figures);
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
  // Half of the time at most, so that the rest can be measured over other sockets.
  const SocketPair pair = ConnectedSockets(deadline - kDeadline / 2);
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
  if (const auto round_trip = QuickestRoundTrip(pair.from.get())) {
    figures.round_trip_us = static_cast<double>(round_trip->count());
  }
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
