// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_FLOW_CONTROL_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_FLOW_CONTROL_H_

#include <cstddef>
#include <cstdint>

// How many frames each end may have on their way, so that no queue of a device ever overruns.
//
// A SEND lands in the next receive buffer that the other end has posted; where none is posted the
// connection breaks in the end. So a frame of data or a message takes a *credit*, of which the
// receiver gives one back for each that its owner has taken. What carries credits back is mostly a
// frame that travels anyway; only where none does, and enough of a window is due, a frame is sent
// for them alone. Such a frame takes no credit itself, and needs none: of each kind no more credits
// exist than the window, and each frame carries a good part of it, so only so many can be unread
// (MostCreditFrames), and buffers are posted for them beside the windows'. (The scheme is that of
// MPI over InfiniBand: Liu and Panda, "Implementing Efficient and Scalable Flow Control Schemes in
// MPI over InfiniBand", 2004.)
//
// TensorFlow connects all pairs of tasks, and most of them have little to say. So a connection
// begins with small windows and few buffers. Once its peer has used up all it may send, and the
// owner takes that, an end posts the buffers of the whole windows, and gives the peer the credits
// that those are worth. What is posted cannot be taken back: a window never shrinks.
namespace ar_grpc::fabric::verbs {

// Bytes of a buffer: a frame with its header. Two pages hold what TensorFlow says beside its
// tensors in one frame mostly.
inline constexpr uint32_t kFrameBytes = 8192;
// Frames of data under way: 128 KiB, ten microseconds of 100 Gb/s.
inline constexpr uint16_t kDataWindow = 16;
inline constexpr uint16_t kMessageWindow = 16;
// Those of a connection that has never used them up: what two ends of HTTP/2 say at once to begin
// with, and a call or two.
inline constexpr uint16_t kFirstDataWindow = 4;
inline constexpr uint16_t kFirstMessageWindow = 2;

// What is due before a frame is sent for credits alone: half of a window, so that a sender need not
// stop. Of a first window it is all of it, for which one buffer is enough.
constexpr uint16_t CreditsWorthAFrame(uint16_t window) { return window > 1 ? window / 2 : 1; }

// Room that is worth a sender's waking: as much, and of a first window any. More than the window
// less what is worth a frame would be waited for in vain, as nobody need send the rest.
constexpr bool IsAwaitedInVain(uint16_t window, uint16_t worth_a_frame, uint16_t room) {
  return room + worth_a_frame > window + 1;
}
static_assert(!IsAwaitedInVain(kDataWindow, CreditsWorthAFrame(kDataWindow),
                               CreditsWorthAFrame(kDataWindow)));
static_assert(!IsAwaitedInVain(kMessageWindow, CreditsWorthAFrame(kMessageWindow),
                               CreditsWorthAFrame(kMessageWindow)));
static_assert(!IsAwaitedInVain(kFirstDataWindow, kFirstDataWindow, 1));
static_assert(!IsAwaitedInVain(kFirstMessageWindow, kFirstMessageWindow, 1));

// Frames for credits of one kind that can be unread. Those of a first window hold all of it; what
// comes after it has grown holds half of the whole one.
constexpr uint32_t MostCreditFrames(uint16_t first, uint16_t window) {
  const uint32_t each = CreditsWorthAFrame(window);
  const uint32_t of_both = 1 + (window - first) / each;
  const uint32_t of_whole = window / each;
  return of_both > of_whole ? of_both : of_whole;
}

inline constexpr uint32_t kCreditFrames = MostCreditFrames(kFirstDataWindow, kDataWindow) +
                                          MostCreditFrames(kFirstMessageWindow, kMessageWindow);

// Receive buffers of a connection: the windows', those for credits alone, and one for the close.
// How many credit frames come depends on the peer's windows, which grow when it likes: they have
// their buffers from the beginning.
constexpr uint32_t ReceiveBuffers(uint16_t data_window, uint16_t message_window) {
  return uint32_t{data_window} + message_window + kCreditFrames + 1;
}
inline constexpr uint32_t kReceiveBuffers = ReceiveBuffers(kDataWindow, kMessageWindow);
inline constexpr uint32_t kFirstReceiveBuffers =
    ReceiveBuffers(kFirstDataWindow, kFirstMessageWindow);

// For each kSignalEvery-th frame the device is asked to say when it is through with it, as each
// answer costs an entry of the completion queue. Its answer is for all frames before it, too. As
// long as data has only its first buffers it is asked more often.
inline constexpr uint32_t kSignalEvery = 8;
inline constexpr uint32_t kFirstSignalEvery = 4;
// Beside a window's buffers those of frames that nobody has heard of yet. With all of them and the
// parts of operations a send queue has fewer than 64 requests: devices round up to powers of two.
inline constexpr uint32_t kUnheardOf = kSignalEvery / 2;
inline constexpr uint32_t kDataSendBuffers = kDataWindow + kUnheardOf;
inline constexpr uint32_t kFirstDataSendBuffers = kFirstDataWindow;
// All frames but those of data are small. Messages leave some of their buffers alone: for credits
// and for the close.
inline constexpr uint32_t kSmallFrameBytes = 64;
inline constexpr uint32_t kReservedSendBuffers = kCreditFrames + 1;
inline constexpr uint32_t kSmallSendBuffers = kMessageWindow + kUnheardOf + kReservedSendBuffers;
inline constexpr uint32_t kSendBuffers = kDataSendBuffers + kSmallSendBuffers;
// Where all buffers of a size are posted, those that an answer is coming for are as many as a
// sender is woken for; otherwise it would sleep for ever.
static_assert(kFirstDataSendBuffers - (kFirstSignalEvery - 1) >= 1);
static_assert(kDataSendBuffers - (kSignalEvery - 1) >= CreditsWorthAFrame(kDataWindow));
static_assert(kSmallSendBuffers - kReservedSendBuffers - (kSignalEvery - 1) >=
              CreditsWorthAFrame(kMessageWindow));

// A connection's buffers lie in one range of memory, of which it begins with a part in the middle:
//
//     data's send buffers, the first ones last | small send buffers | receive buffers
inline constexpr size_t kSmallBytes = 4096;
static_assert(kSmallSendBuffers * kSmallFrameBytes <= kSmallBytes);
inline constexpr size_t kSmallBegin = size_t{kFrameBytes} * kDataSendBuffers;
inline constexpr size_t kReceiveBegin = kSmallBegin + kSmallBytes;
inline constexpr size_t kConnectionBytes = kReceiveBegin + size_t{kFrameBytes} * kReceiveBuffers;
struct BufferRange {
  size_t begin;
  size_t end;
};
inline constexpr BufferRange kFirstBuffers = {
    size_t{kFrameBytes} * (kDataSendBuffers - kFirstDataSendBuffers),
    kReceiveBegin + size_t{kFrameBytes} * kFirstReceiveBuffers};
inline constexpr BufferRange kLaterSendBuffers = {0, kFirstBuffers.begin};
inline constexpr BufferRange kLaterReceiveBuffers = {kFirstBuffers.end, kConnectionBytes};
// Registered bytes of a connection to begin with; kConnectionBytes where both ends use it much.
inline constexpr size_t kFirstBytes = kFirstBuffers.end - kFirstBuffers.begin;

// One end's right to send frames of one kind.
class SendWindow {
 public:
  SendWindow(uint16_t first, uint16_t size) : first_(first), size_(size), left_(first) {}
  uint16_t left() const { return left_; }
  // Whether the peer has posted the buffers of the whole window.
  bool whole() const { return whole_; }
  // Only where left() > 0.
  void Take() { --left_; }
  // false for more than there can be: then the peer lies.
  bool Give(uint16_t credits) {
    if (credits > size_ - left_) return false;
    left_ = static_cast<uint16_t>(left_ + credits);
    whole_ = whole_ || left_ > first_;
    return true;
  }
  // Room that is worth the waking of who waits for it.
  uint16_t worth_waking() const { return whole_ ? CreditsWorthAFrame(size_) : uint16_t{1}; }

 private:
  const uint16_t first_;
  const uint16_t size_;
  uint16_t left_;
  bool whole_ = false;
};

// One end's duty to take frames of one kind.
class ReceiveWindow {
 public:
  ReceiveWindow(uint16_t first, uint16_t size) : size_(size), granted_(first), worth_(first) {}
  // A frame has come. false: without a credit.
  bool Come() {
    if (held_ + due_ == granted_) return false;
    ++held_;
    return true;
  }
  // Its owner has taken one that had come.
  void Taken() {
    used_up_ = used_up_ || held_ + due_ == granted_;
    --held_;
    ++due_;
  }
  uint16_t due() const { return due_; }
  bool worth_a_frame() const { return due_ >= worth_; }
  // The credits to send now.
  uint16_t TakeDue() {
    const uint16_t due = due_;
    due_ = 0;
    return due;
  }
  // Whether the peer has used up a first window, and the owner takes what comes.
  bool is_small() const { return used_up_ && granted_ < size_; }
  // Buffers of the whole window are posted.
  void Grow() {
    due_ = static_cast<uint16_t>(due_ + size_ - granted_);
    granted_ = size_;
    worth_ = CreditsWorthAFrame(size_);
  }

 private:
  const uint16_t size_;
  uint16_t granted_;   // credits that there are
  uint16_t worth_;     // due, for a frame of credits alone
  uint16_t held_ = 0;  // come and not taken
  uint16_t due_ = 0;   // taken, and the sender does not know yet
  bool used_up_ = false;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_FLOW_CONTROL_H_
