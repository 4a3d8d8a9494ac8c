// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/figures.h"

#include <algorithm>
#include <cmath>

namespace ar_grpc::protocol {
namespace {

// A copy, or a stream or a device that copies, in bytes per us. 1 GB/s is less than any memory of
// the last twenty years gives to one core; 100 GB/s is more than a core's own cache gives (32 bytes
// a cycle at 3 GHz). What is not this machine's memory may be slow as an emulated device is.
constexpr double kSlowestCopy = 1e3;
constexpr double kFastestCopy = 1e5;
constexpr double kSlowestWire = 10;
// A system call is at least this, a thread's change at least ten times that; at most ten times what
// was seen on idle machines.
constexpr double kLeastCallUs = 0.05;
constexpr double kMostCallUs = 50;
constexpr double kLeastWakeUs = 0.5;
constexpr double kMostWakeUs = 200;
// A hash map's insertion under a lock, and a call of a function that copies nothing.
constexpr double kMostOfferUs = 5;
constexpr double kMostInlineUs = 1;
// Memory that is made known as a whole takes next to nothing for a byte.
constexpr double kFastestRegistration = 1e9;
// To a far end of a building and back, by software on both ends.
constexpr double kMostLatencyUs = 1000;

// `value` within the bounds; what is no number becomes the lower one.
double Bounded(double value, double least, double most) {
  return value >= least ? std::min(value, most) : least;
}

Stage Bounded(const Stage& stage, double slowest) {
  return {Bounded(stage.start_us, 0, kMostLatencyUs), Bounded(stage.operation_us, 0, kMostCallUs),
          Bounded(stage.bytes_per_us, slowest, kFastestCopy)};
}

double UsPerStreamByte(const Stage& stage) {
  return 1 / stage.bytes_per_us + stage.operation_us / static_cast<double>(kFrameBytes);
}

// Chunks for a transfer whose every operation takes `operation_us` beside `us_per_byte`. Before a
// chunk's memory serves the next operation, `idle_us` pass and `copy_us_per_byte` are spent on it.
ChunkPlan Plan(double operation_us, double idle_us, double us_per_byte, double copy_us_per_byte,
               uint64_t largest) {
  // A chunk is as large as it must be for operations to take at most this share of the time.
  // Chunks smaller than a part cost more and gain nothing.
  constexpr double kOverhead = 0.02;
  // More operations at a time only take memory.
  constexpr int kMostInFlight = 8;
  ChunkPlan plan{kPartBytes, kFewestInFlight};
  // Nor may so many of them leave the way idle.
  const double least_us = std::max(operation_us / kOverhead, idle_us / (kMostInFlight - 1));
  while (plan.bytes < largest && us_per_byte * static_cast<double>(plan.bytes) < least_us) {
    plan.bytes *= 2;
  }
  // While one is transferred, the others cover what passes until its successor is.
  const double bytes = static_cast<double>(plan.bytes);
  const double between = operation_us + idle_us + bytes * copy_us_per_byte;
  const double covering = 1 + std::ceil(between / (us_per_byte * bytes));
  plan.in_flight = covering < kMostInFlight
                       ? std::max(static_cast<int>(std::max(covering, 0.0)), kFewestInFlight)
                       : kMostInFlight;
  return plan;
}

// Where a read is one copy by the thread that asks for it.
void KeepCrossing(Figures* figures) {
  Stage& get = figures->get;
  // Then it is the same work as any copy, and the faster of two measurements of the same is the
  // less disturbed. So the stream, which passes the bytes on before they are copied like that,
  // always takes longer for a byte than a read does, and there is one crossing.
  get.bytes_per_us = std::max(get.bytes_per_us, figures->copy_bytes_per_us);
  figures->copy_bytes_per_us = get.bytes_per_us;
  get.start_us = std::min(get.start_us, kMostInlineUs);
  get.operation_us = std::min(get.operation_us, kMostInlineUs);
  // Up to a part, a read saves `saved` for each byte and takes `extra` more.
  const double saved = UsPerStreamByte(figures->send) + UsPerStreamByte(figures->receive);
  const double extra = get.start_us + get.operation_us + figures->message_us + figures->offer_us;
  const double least = static_cast<double>(kLowestCrossing) * saved;
  const double most = static_cast<double>(kHighestCrossing) * saved;
  if (extra < least) figures->message_us += least - extra;
  if (extra > most) {
    for (double* const part :
         {&get.start_us, &get.operation_us, &figures->message_us, &figures->offer_us}) {
      *part *= most / extra;
    }
  }
}

}  // namespace

int CopiersFor(uint64_t size) {
  return static_cast<int>(std::clamp<uint64_t>(size / kBytesPerCopier, 1, kMaxCopiers));
}

Figures Plausible(Figures figures, Nature nature) {
  figures.copy_bytes_per_us = Bounded(figures.copy_bytes_per_us, kSlowestCopy, kFastestCopy);
  const double slowest = nature.copies_inline ? kSlowestCopy : kSlowestWire;
  figures.send = Bounded(figures.send, slowest / 10);
  figures.receive = Bounded(figures.receive, slowest / 10);
  figures.get = Bounded(figures.get, slowest);
  figures.registration = {
      Bounded(figures.registration.start_us, 0, kMostLatencyUs),
      Bounded(figures.registration.operation_us, 0, kMostCallUs),
      Bounded(figures.registration.bytes_per_us, kSlowestWire, kFastestRegistration)};
  // A sender that is ahead by less than a part gains nothing from a second thread.
  figures.window_bytes = std::clamp<uint64_t>(figures.window_bytes, kPartBytes, uint64_t{1} << 62);
  figures.message_us = Bounded(figures.message_us, kLeastCallUs, kMostCallUs);
  figures.offer_us = Bounded(figures.offer_us, kLeastCallUs, kMostOfferUs);
  figures.wake_us = Bounded(figures.wake_us, kLeastWakeUs, kMostWakeUs);
  figures.call_us = Bounded(figures.call_us, 0, kMostLatencyUs);
  figures.round_trip_us = Bounded(figures.round_trip_us, 0, kMostLatencyUs);
  if (nature.copies_inline) KeepCrossing(&figures);
  // Threads that help never slow a copy, since one that comes late finds nothing left to do, and k
  // of them are at most k times as fast.
  std::array<double, kMaxCopiers>& parallel = figures.parallel_bytes_per_us;
  parallel[0] = figures.get.bytes_per_us;
  for (int k = 1; k < kMaxCopiers; ++k) {
    parallel[k] = Bounded(parallel[k], parallel[k - 1], (k + 1) * parallel[0]);
  }
  return figures;
}

ChunkPlan PlanChunks(const Figures& figures) {
  const double call = 2 * (figures.send.start_us + figures.receive.start_us) + figures.call_us;
  // The slower end's time, or the credits'; the other end works meanwhile. A chunk that has come is
  // copied into the tensor before the next one is asked for.
  const double us_per_byte =
      std::max({UsPerStreamByte(figures.send), UsPerStreamByte(figures.receive),
                figures.far_us / static_cast<double>(figures.credit_bytes)});
  return Plan(call, 2 * figures.wake_us + figures.far_us, us_per_byte,
              1 / figures.copy_bytes_per_us, kLargestChunkBytes);
}

ChunkPlan PlanReads(const Figures& figures) {
  // Each end wakes a thread, which starts the next.
  return Plan(figures.get.start_us + figures.get.operation_us + figures.wake_us, figures.far_us,
              1 / figures.get.bytes_per_us, 1 / figures.copy_bytes_per_us, kLargestPartBytes);
}

double FarUs(double round_trip_us, double near_us) {
  const double far = std::min(round_trip_us - near_us, kMostFarUs);
  return far >= kLeastFarUs ? far : 0;
}

Figures WithStreamOf(Figures figures, const Figures& carrier) {
  figures.send = carrier.send;
  figures.receive = carrier.receive;
  figures.window_bytes = carrier.window_bytes;
  figures.credit_bytes = carrier.credit_bytes;
  figures.message_us = carrier.message_us;
  figures.wake_us = carrier.wake_us;
  figures.call_us = carrier.call_us;
  return figures;
}

Figures AssumedShm() {
  // What measure.cc measures on the project's machine (two cores of an AMD EPYC, Zen 4; Linux 6),
  // rounded; copies are within its third-level cache. Outside of it one of 1 MiB took 109 us
  // there, once, that is 9.6 GB/s; UCX assumes 12.2 GB/s of shared memory
  // (openucx/ucx, src/uct/sm/base/sm_iface.c, "BW"). What decides between message and read is the
  // ratio, and the copy that both end with is not in it.
  Figures figures;
  figures.send = {0.5, 0, 11000};
  figures.receive = {0.9, 0, 48000};
  figures.window_bytes = uint64_t{512} << 10;
  figures.get = {0.05, 0.09, 38000};
  figures.parallel_bytes_per_us = {38000, 60000, 60000, 60000};
  figures.copy_bytes_per_us = 38000;
  figures.registration = {3, 0, 1e9};
  figures.message_us = 1.4;
  figures.offer_us = 0.35;
  figures.wake_us = 4;
  return figures;
}

Figures AssumedTcp() {
  // The same over 127.0.0.1.
  Figures figures;
  figures.send = {3.5, 0, 7300};
  figures.receive = {3.8, 0, 28000};
  figures.window_bytes = uint64_t{2} << 20;
  figures.copy_bytes_per_us = 38000;
  figures.message_us = 7.3;
  figures.offer_us = 0.35;
  figures.wake_us = 5;
  figures.round_trip_us = 20;
  // Nothing reads over it.
  figures.get = {0, 0, 1};
  figures.parallel_bytes_per_us = {1, 1, 1, 1};
  return figures;
}

Figures AssumedVerbs() {
  // What UCX's own selection assumes of a ConnectX-6 (openucx/ucx): 600 ns one way and 4 lanes of
  // 51.5625 Gb/s with 64 of 66 bits payload, that is 25 GB/s (uct_ib_iface_query of
  // src/uct/ib/base/ib_iface.c, UCT_IB_SPEED_HDR); 75 ns to post (src/uct/ib/rc/verbs/
  // rc_verbs_iface.c, commit a9aeeea); 16 us and 0.06 ns a byte to register
  // (src/uct/ib/base/ib_md.c, commit 004eadf). A read is a round trip, and a device needs no
  // helpers. The rest is as in AssumedShm.
  Figures figures = AssumedShm();
  // Two SENDs of 8 KiB to a frame, each copied into its buffer, and out of one where it has come
  // (fabric/verbs/flow_control.h, whose window the credits are); the first comes one way later.
  figures.send = {0.5, 0.15, 38000};
  figures.receive = {1.5, 0, 1 / (1.0 / 25000 + 1.0 / 38000)};
  figures.window_bytes = figures.credit_bytes = uint64_t{128} << 10;
  figures.get = {1.2, 0.075, 25000};
  figures.parallel_bytes_per_us = {25000, 25000, 25000, 25000};
  figures.registration = {16, 0, 1 / 0.06e-3};
  return figures;
}

Figures Assumed(const std::string& fabric) {
  if (fabric == "shm" || fabric == "loopback") return AssumedShm();
  if (fabric == "verbs") return AssumedVerbs();
  return AssumedTcp();
}

}  // namespace ar_grpc::protocol
