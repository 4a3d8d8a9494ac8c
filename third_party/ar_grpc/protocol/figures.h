// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_FIGURES_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_FIGURES_H_

#include <array>
#include <cstdint>
#include <string>

// What a fabric's operations take, as plain numbers. Nothing here measures (measure.h does) or
// decides (schemes.h does), so every table that follows from figures is tested without hardware.
namespace ar_grpc::protocol {

// A tensor that is read is read in parts of this size, each by one operation, by at most so many
// threads at the same time.
inline constexpr uint64_t kPartBytes = uint64_t{256} << 10;
inline constexpr int kMaxCopiers = 4;
// What each of them must have to copy: to wake one takes as long as the copy of some hundred KiB.
inline constexpr uint64_t kBytesPerCopier = uint64_t{1} << 20;
// How many threads copy `size` bytes, where so many are free: 1 to kMaxCopiers.
int CopiersFor(uint64_t size);
// The stream's bytes are measured in frames of this much payload: what HTTP/2 allows without
// negotiation (RFC 9113, 6.5.2, SETTINGS_MAX_FRAME_SIZE). gRPC may allow its peer longer ones, once
// it knows how much comes in (chttp2/transport/flow_control.h), which cost a message no more.
inline constexpr uint64_t kFrameBytes = uint64_t{1} << 14;

// One kind of work: `start_us` once, `operation_us` for each operation that it is made of, and the
// bytes at `bytes_per_us`.
struct Stage {
  double start_us = 0;
  double operation_us = 0;
  double bytes_per_us = 1;

  double Us(double bytes, double operations) const {
    return start_us + operations * operation_us + bytes / bytes_per_us;
  }
};

// One fabric's, between two processes; the stream's are those of the connection that carries gRPC's
// stream where the fabric is used, which may be TCP. All times are of the processor or device at
// work, without the sleep of a thread that waits; that is `wake_us`.
struct Figures {
  // A message through gRPC's byte stream: the sender's work, and the receiver's until it has all of
  // it in memory of its own. An operation is a frame of kFrameBytes.
  Stage send;
  Stage receive;
  // How many bytes the sender can be ahead. A longer message is sent and received at the same time.
  uint64_t window_bytes = uint64_t{1} << 62;

  // A one-sided read by one thread, from its start to its end. An operation is a part.
  Stage get;
  // What [k-1] threads that read parts at the same time reach together. The first is get's.
  std::array<double, kMaxCopiers> parallel_bytes_per_us{1, 1, 1, 1};

  // To copy a tensor, out of a message that has come or into memory that can be read; and to make
  // such memory known to the fabric.
  double copy_bytes_per_us = 1;
  Stage registration{0, 0, 1e9};

  // A release: a message beside the stream, from the call that sends it to the receiver's readiness
  // for the next, both ends' work.
  double message_us = 0;
  // To hold a tensor for a receiver, and to let it go.
  double offer_us = 0;
  // From the call that wakes a sleeping thread to that thread's first instruction.
  double wake_us = 0;
  // A call of gRPC and TensorFlow beside what the stream takes for it. Nothing below them can
  // measure it; a RecvTensor takes 130 to 200 us on two cores of an AMD EPYC.
  double call_us = 150;

  // By how much a round trip to this peer takes longer than one within this host, with which the
  // other figures are measured (FarUs). A read waits for one, and so does the stream for each
  // further `credit_bytes`: so many may be on their way before the peer says that it took some.
  double far_us = 0;
  uint64_t credit_bytes = uint64_t{1} << 62;
  // Of TCP within this host, as its kernel counts (QuickestRoundTrip of base/os.h).
  double round_trip_us = 0;
};

// Figures::far_us of a peer to which TCP's quickest round trip takes `round_trip_us`, where one
// within this host takes `near_us`: what it is more, or 0. TCP is what both ends have before they
// have a fabric. That its segments and a device's reads go the same way is assumed, and that what
// TCP adds beside it is less than kLeastFarUs.
double FarUs(double round_trip_us, double near_us);
// A switch, an interrupt that a device holds back and a processor that wakes take TCP some tens of
// microseconds of which a read has next to none, and more where much else runs. 512 us are some
// 50 km of glass there and back.
inline constexpr double kLeastFarUs = 512;
inline constexpr double kMostFarUs = 1 << 20;

// A response without its tensor takes as much of the stream's credits as one with so much: one
// SEND.
inline constexpr uint64_t kDescriptorBytes = uint64_t{8} << 10;

// How a transfer is cut: into operations of at most `bytes`, so many of them at the same time.
struct ChunkPlan {
  uint64_t bytes;
  int in_flight;
};
// The largest chunk that a server serves. Servers of earlier releases refuse larger ones.
inline constexpr uint64_t kLargestChunkBytes = uint64_t{8} << 20;
// The largest part of a device's read: where it cannot go into the tensor, it lies in memory of
// this process's until it is copied there.
inline constexpr uint64_t kLargestPartBytes = uint64_t{8} << 20;
// Two, as else nothing is under way between an end and the next start.
inline constexpr int kFewestInFlight = 2;
// Calls for what fits into no message, through the stream.
ChunkPlan PlanChunks(const Figures& figures);
// Operations of a read that ends later, as over a device.
ChunkPlan PlanReads(const Figures& figures);

// What is known of a fabric besides its figures, for Plausible.
struct Nature {
  // A read is one copy by the thread that asks for it (fabric::Capabilities::inline_get), and the
  // stream a copy in and a copy out.
  bool copies_inline = false;
};

// The figures with each within bounds that no working machine leaves, whatever was measured. A
// measurement on a busy machine can be far off, but what follows from it holds as long as the
// process; so a wrong figure must still give a usable table. Figures that are no numbers become a
// bound. With `nature.copies_inline` the size at which reading becomes cheaper than the message is
// within [kLowestCrossing, kHighestCrossing] and there is only one.
Figures Plausible(Figures figures, Nature nature);

// 4 KiB through the stream is copied twice more than when it is read: less than a microsecond even
// where a copy moves 10 GB/s, and the release's system calls alone take that.
inline constexpr uint64_t kLowestCrossing = uint64_t{4} << 10;
// 128 KiB twice more takes 5 us at 50 GB/s, which is a core's own cache; a release that costs both
// ends more than that was measured between interruptions.
inline constexpr uint64_t kHighestCrossing = uint64_t{128} << 10;

// What stands where nothing could be measured, and what the golden tables are made of. Each
// figure's source is at its place in figures.cc.
Figures AssumedShm();
Figures AssumedVerbs();
Figures AssumedTcp();
// By the fabric's name; unknown ones are as TCP.
Figures Assumed(const std::string& fabric);

// `figures` of a fabric without a stream, with the stream of `carrier`, over which gRPC stays.
Figures WithStreamOf(Figures figures, const Figures& carrier);

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_FIGURES_H_
