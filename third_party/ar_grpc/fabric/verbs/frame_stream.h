// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_FRAME_STREAM_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_FRAME_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/flow_control.h"
#include "third_party/ar_grpc/fabric/verbs/stream_frame.h"

namespace ar_grpc::fabric::verbs {

// One end of a connection's byte stream and messages, as frames in buffers: which buffer is sent
// next, what has come, who is to be woken. It knows no device: who owns it posts what it is given,
// so that all of this is tested without one. Not thread-safe.
//
// A send buffer is free, or being filled by its taker, or the device's until FreeSendBuffer. A
// receive buffer is the device's until its frame is given to TakeFrame, then this one's, and it is
// to be posted again when a call says so.
class FrameStream {
 public:
  // `buffers` has kConnectionBytes and outlives this; it begins with kFirstBuffers of them, of
  // which the first kFirstReceiveBuffers are posted.
  explicit FrameStream(uint8_t* buffers);

  static constexpr uint32_t kNoBuffer = UINT32_MAX;
  // Data's have kFrameBytes, the others kSmallFrameBytes.
  uint8_t* send_buffer(uint32_t index) const;
  uint8_t* receive_buffer(uint32_t index) const {
    return buffers_ + kReceiveBegin + size_t{index} * kFrameBytes;
  }

  // --- sending ---

  // Takes buffers and credits for up to `most` frames of data.
  std::vector<uint32_t> TakeForData(size_t most);
  // Takes a buffer and a credit for a message; kNoBuffer where there is none.
  uint32_t TakeForMessage();
  // A buffer for a frame of credits, when enough are due; kNoBuffer where none is needed or free.
  uint32_t TakeForCredits();
  uint32_t TakeForClose();
  // The first frame of all, where one must go before others.
  uint32_t TakeForGreeting() { return TakeSmall(0); }
  // Writes the header, with all credits that are due, and returns the frame's bytes. The payload
  // lies behind the header already.
  uint32_t Seal(uint32_t buffer, FrameKind kind, size_t payload);
  // Whether the device is to be asked for an answer when it is through with the frame that is
  // posted next: only now and then, but of buffers that are all posted some always wait for one.
  bool SignalNext();
  // The device is through with it, or never got it.
  void FreeSendBuffer(uint32_t index);
  // Frames of data, and messages, that could be sent now.
  size_t DataRoom() const;
  size_t MessageRoom() const;
  // Whether the last of them were more than there was room for, and half a window has not become
  // free since: two ends must not wake each other for every frame.
  bool DataIsFull() const;
  bool MessagesAreFull() const;
  // Whether few buffers are free until the device says what it is through with: small ones, or,
  // where `writer_waits`, data's.
  bool WantsAnswers(bool writer_waits) const;
  // The peer's window is larger than what data's first send buffers can use.
  bool wants_send_buffers() const {
    return data_refused_ && !has_all_sends_ && data_to_send_.whole();
  }
  // Those of kLaterSendBuffers are there.
  void AddSendBuffers();

  // --- receiving ---

  // A frame of `size` bytes in a receive buffer. kInvalidArgument: the peer does not keep to the
  // protocol, and the connection is to be broken. What follows tells what has changed.
  Status TakeFrame(uint32_t index, size_t size);
  // Receive buffers to be posted now.
  std::vector<uint32_t> TakeToPost();
  // The peer has used up a first window, and the owner takes what comes.
  bool wants_receive_buffers() const {
    return data_taken_.is_small() || messages_taken_.is_small();
  }
  // Those of kLaterReceiveBuffers are there. The peer's windows are whole once it hears of it.
  void AddReceiveBuffers();
  // The next bytes of the stream, in place until Skip; nothing else touches them.
  struct Bytes {
    const uint8_t* data = nullptr;
    size_t size = 0;
  };
  Bytes Front() const;
  // The owner has taken the first `size` bytes of Front.
  void Skip(size_t size);
  size_t readable() const { return readable_; }
  bool has_message() const { return !messages_.empty(); }
  // Only where has_message().
  Message TakeMessage();
  // The peer has sent its last frame.
  bool peer_closed() const { return peer_closed_; }

 private:
  struct Held {
    uint32_t index;
    uint32_t begin;  // of what is left, in the buffer
    uint32_t end;
  };

  uint32_t TakeSmall(size_t leave);

  uint8_t* const buffers_;
  SendWindow data_to_send_{kFirstDataWindow, kDataWindow};
  SendWindow messages_to_send_{kFirstMessageWindow, kMessageWindow};
  ReceiveWindow data_taken_{kFirstDataWindow, kDataWindow};
  ReceiveWindow messages_taken_{kFirstMessageWindow, kMessageWindow};
  // Send buffers: data's have the numbers below kDataSendBuffers.
  std::vector<uint32_t> free_data_;
  std::vector<uint32_t> free_small_;
  bool has_all_sends_ = false;
  bool data_refused_ = false;
  bool message_refused_ = false;
  uint32_t since_signal_ = 0;
  std::deque<Held> held_;
  size_t readable_ = 0;  // bytes in held_
  std::deque<Message> messages_;
  std::vector<uint32_t> to_post_;
  bool peer_closed_ = false;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_FRAME_STREAM_H_
