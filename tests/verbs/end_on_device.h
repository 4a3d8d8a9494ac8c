// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_VERBS_END_ON_DEVICE_H_
#define TESTS_VERBS_END_ON_DEVICE_H_

#include <algorithm>
#include <cstring>
#include <deque>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/fabric/verbs/frame_stream.h"

namespace ar_grpc::fabric::verbs::testing {

inline uint8_t ByteAt(uint64_t position, int end) {
  return static_cast<uint8_t>((position + static_cast<uint64_t>(end)) * 2654435761u >> 11);
}

// One end with its device: receive buffers posted, and frames sent that the device was not yet seen
// to be through with.
class EndOnDevice {
 public:
  explicit EndOnDevice(int number) : number_(number) {
    for (uint32_t i = 0; i < kFirstReceiveBuffers; ++i) posted_.push_back(i);
  }

  // What the stream wants is registered.
  void Grow() {
    if (stream_.wants_send_buffers()) {
      registered_.push_back(kLaterSendBuffers);
      stream_.AddSendBuffers();
      Check(!stream_.wants_send_buffers(), "send buffers are wanted again");
    }
    if (stream_.wants_receive_buffers()) {
      registered_.push_back(kLaterReceiveBuffers);
      stream_.AddReceiveBuffers();
      Check(!stream_.wants_receive_buffers(), "receive buffers are wanted again");
    }
    PostAgain();
  }
  // Its registered bytes.
  size_t bytes() const {
    size_t all = 0;
    for (const BufferRange& range : registered_) all += range.end - range.begin;
    return all;
  }

  void SendData(size_t frames, std::mt19937* random, std::deque<std::string>* wire) {
    for (const uint32_t buffer : stream_.TakeForData(frames)) {
      const size_t size = 1 + (*random)() % kFramePayload;
      uint8_t* const payload = stream_.send_buffer(buffer) + kFrameHeaderBytes;
      for (size_t i = 0; i < size; ++i) payload[i] = ByteAt(sent_++, number_);
      Send(buffer, FrameKind::kData, size, wire);
    }
  }
  void SendMessage(std::deque<std::string>* wire) {
    const uint32_t buffer = stream_.TakeForMessage();
    if (buffer == FrameStream::kNoBuffer) return;
    std::memset(stream_.send_buffer(buffer) + kFrameHeaderBytes,
                static_cast<uint8_t>(messages_sent_++), Message::kSize);
    Send(buffer, FrameKind::kMessage, Message::kSize, wire);
  }
  void SendCredits(std::deque<std::string>* wire) {
    const uint32_t buffer = stream_.TakeForCredits();
    if (buffer != FrameStream::kNoBuffer) Send(buffer, FrameKind::kCredits, 0, wire);
  }
  void SendClose(std::deque<std::string>* wire) {
    Send(stream_.TakeForClose(), FrameKind::kClose, 0, wire);
  }
  // The next frame of the wire arrives; the end has not looked at it yet.
  void Arrive(std::deque<std::string>* wire) {
    Check(!posted_.empty(), "a frame finds no receive buffer");
    const std::string frame = std::move(wire->front());
    wire->pop_front();
    const uint32_t index = posted_.front();
    posted_.pop_front();
    std::memcpy(stream_.receive_buffer(index), frame.data(), frame.size());
    arrived_.push_back({index, frame.size()});
  }
  void Poll() {
    for (const Arrived& one : arrived_) {
      CheckCode(stream_.TakeFrame(one.index, one.size), StatusCode::kOk);
    }
    arrived_.clear();
    PostAgain();
  }
  void Land(std::deque<std::string>* wire) {
    Arrive(wire);
    Poll();
  }
  void TakeMessage() {
    Check(stream_.has_message(), "a message");
    stream_.TakeMessage();
    ++messages_taken_;
  }
  void Read(size_t most) {
    while (most > 0) {
      const FrameStream::Bytes front = stream_.Front();
      const size_t size = std::min(front.size, most);
      if (size == 0) return;
      for (size_t i = 0; i < size; ++i) {
        Check(front.data[i] == ByteAt(read_++, 1 - number_), "a byte of the stream");
      }
      stream_.Skip(size);
      most -= size;
      PostAgain();
    }
  }
  void TakeMessages() {
    while (stream_.has_message()) {
      const Message message = stream_.TakeMessage();
      Check(message.bytes[31] == static_cast<uint8_t>(messages_taken_++), "a message");
    }
  }
  // The device answers what it is asked to, once it comes to that.
  void Complete() {
    while (!sent_frames_.empty()) {
      const auto answered = std::find_if(sent_frames_.begin(), sent_frames_.end(),
                                         [](const Sent& one) { return one.signaled; });
      if (answered == sent_frames_.end()) return;
      for (auto one = sent_frames_.begin(); one != answered + 1; ++one) {
        stream_.FreeSendBuffer(one->buffer);
      }
      sent_frames_.erase(sent_frames_.begin(), answered + 1);
    }
  }
  size_t unanswered() const { return sent_frames_.size(); }
  uint64_t frames() const { return frames_; }
  uint64_t signaled() const { return signaled_; }
  uint64_t sent() const { return sent_; }
  uint64_t read() const { return read_; }
  uint64_t messages_sent() const { return messages_sent_; }
  uint64_t messages_taken() const { return messages_taken_; }
  FrameStream& stream() { return stream_; }

 private:
  struct Sent {
    uint32_t buffer;
    bool signaled;
  };
  struct Arrived {
    uint32_t index;
    size_t size;
  };

  void Send(uint32_t buffer, FrameKind kind, size_t payload, std::deque<std::string>* wire) {
    const uint32_t size = stream_.Seal(buffer, kind, payload);
    CheckRegistered(stream_.send_buffer(buffer), size);
    sent_frames_.push_back({buffer, stream_.SignalNext()});
    frames_ += 1;
    signaled_ += sent_frames_.back().signaled ? 1 : 0;
    Check(sent_frames_.size() <= kSendBuffers, "the send queue overruns");
    wire->emplace_back(reinterpret_cast<const char*>(stream_.send_buffer(buffer)), size);
  }
  void PostAgain() {
    for (const uint32_t index : stream_.TakeToPost()) {
      CheckRegistered(stream_.receive_buffer(index), kFrameBytes);
      posted_.push_back(index);
    }
    Check(posted_.size() <= kReceiveBuffers, "the receive queue overruns");
  }
  void CheckRegistered(const uint8_t* buffer, size_t size) const {
    const auto begin = static_cast<size_t>(buffer - memory_.data());
    const bool within =
        std::any_of(registered_.begin(), registered_.end(), [&](const BufferRange& range) {
          return range.begin <= begin && begin + size <= range.end;
        });
    Check(within, "a buffer that the device does not know");
  }

  const int number_;
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kConnectionBytes);
  FrameStream stream_{memory_.data()};
  std::vector<BufferRange> registered_ = {kFirstBuffers};
  std::deque<uint32_t> posted_;
  std::vector<Arrived> arrived_;
  std::deque<Sent> sent_frames_;
  uint64_t frames_ = 0;
  uint64_t signaled_ = 0;
  uint64_t sent_ = 0;
  uint64_t read_ = 0;
  uint64_t messages_sent_ = 0;
  uint64_t messages_taken_ = 0;
};

}  // namespace ar_grpc::fabric::verbs::testing

#endif  // TESTS_VERBS_END_ON_DEVICE_H_
