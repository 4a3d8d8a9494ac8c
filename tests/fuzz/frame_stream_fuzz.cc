// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// One end of verbs' byte stream, whose peer sends any frames with any credits, while its owner
// reads, writes and posts as it likes. A frame that does not keep to the protocol breaks it, and
// before that no buffer is with two owners and none is lost.

#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "third_party/ar_grpc/fabric/verbs/frame_stream.h"

namespace ar_grpc::fabric::verbs {
namespace {

using fuzz::Input;
using fuzz::Must;

class Owner {
 public:
  explicit Owner(uint8_t* buffers) : stream_(buffers) {
    for (uint32_t i = 0; i < kFirstReceiveBuffers; ++i) posted_.push_back(i);
  }

  void Run(Input* input) {
    while (!input->empty() && Step(input)) {
      Must(stream_.Front().size <= stream_.readable(), "what is in front is readable");
      size_t held = 0;
      for (const size_t size : data_) held += size;
      Must(stream_.readable() == held, "what came and was not taken is readable");
      Must(data_.size() <= (has_receives_ ? kDataWindow : kFirstDataWindow) &&
               messages_ <= (has_receives_ ? kMessageWindow : kFirstMessageWindow),
           "none came without a credit");
      Must(IsWithin(data_under_way_, kFirstDataWindow, kDataWindow),
           "no more are sent than may be");
      Must(IsWithin(messages_under_way_, kFirstMessageWindow, kMessageWindow), "nor messages");
    }
  }

 private:
  // A peer whose window has grown gives back more than was sent: what it grew by.
  static bool IsWithin(int under_way, int first, int window) {
    return under_way <= first && under_way >= first - window;
  }

  // false: the peer has broken the protocol.
  bool Step(Input* input) {
    switch (input->Byte() % 8) {
      case 0:
      case 1:
        return Come(input);
      case 2:
        if (const auto front = stream_.Front(); front.size > 0) {
          const size_t size = std::clamp<size_t>(input->Number(2), 1, front.size);
          stream_.Skip(size);
          data_.front() -= size;
          if (data_.front() == 0) data_.pop_front();
        }
        return true;
      case 3:
        Must(stream_.has_message() == (messages_ > 0), "messages are counted");
        if (stream_.has_message()) {
          stream_.TakeMessage();
          --messages_;
        }
        return true;
      case 4:
        Grow();
        Post();
        return true;
      case 5:
        for (const uint32_t buffer : stream_.TakeForData(input->Byte() % (2 * kDataWindow))) {
          Send(buffer, FrameKind::kData, 1 + input->Byte());
        }
        return true;
      case 6:
        Send(stream_.TakeForMessage(), FrameKind::kMessage, Message::kSize);
        Send(stream_.TakeForCredits(), FrameKind::kCredits, 0);
        return true;
      default:
        if (sent_.empty()) return true;
        stream_.FreeSendBuffer(sent_.front());
        sent_.pop_front();
        return true;
    }
  }

  bool Come(Input* input) {
    if (posted_.empty()) return false;  // the device would have refused it
    const uint32_t index = posted_.front();
    posted_.pop_front();
    // A header with any bytes, and so many more that the size may or may not be right.
    const std::string header = input->Text(kFrameHeaderBytes);
    uint8_t* const buffer = stream_.receive_buffer(index);
    std::memcpy(buffer, header.data(), header.size());
    const size_t size = std::min<size_t>(header.size() + input->Number(2), kFrameBytes);
    if (size > header.size()) std::memset(buffer + header.size(), 7, size - header.size());
    if (!stream_.TakeFrame(index, size).ok()) return false;
    const auto taken = DecodeFrame(buffer, size);
    Must(taken.ok(), "only frames are taken");
    data_under_way_ -= taken->data_credits;
    messages_under_way_ -= taken->message_credits;
    if (taken->kind == FrameKind::kData) data_.push_back(taken->payload);
    if (taken->kind == FrameKind::kMessage) ++messages_;
    return true;
  }

  // What the stream wants is added once, as the queue pair does.
  void Grow() {
    if (stream_.wants_send_buffers() && !std::exchange(has_sends_, true)) stream_.AddSendBuffers();
    if (stream_.wants_receive_buffers() && !std::exchange(has_receives_, true)) {
      stream_.AddReceiveBuffers();
    }
  }

  void Post() {
    for (const uint32_t index : stream_.TakeToPost()) {
      Must(index < kReceiveBuffers, "a buffer that there is");
      Must(std::find(posted_.begin(), posted_.end(), index) == posted_.end(), "posted once");
      posted_.push_back(index);
    }
  }

  void Send(uint32_t buffer, FrameKind kind, size_t payload) {
    if (buffer == FrameStream::kNoBuffer) return;
    Must(buffer < kSendBuffers, "a buffer that there is");
    Must(std::find(sent_.begin(), sent_.end(), buffer) == sent_.end(), "sent once");
    const uint32_t size = stream_.Seal(buffer, kind, payload);
    Must(DecodeFrame(stream_.send_buffer(buffer), size).ok(), "what is sent is a frame");
    static_cast<void>(stream_.SignalNext());
    sent_.push_back(buffer);
    data_under_way_ += kind == FrameKind::kData;
    messages_under_way_ += kind == FrameKind::kMessage;
  }

  FrameStream stream_;
  std::deque<uint32_t> posted_;
  std::deque<uint32_t> sent_;
  std::deque<size_t> data_;  // bytes of frames that came and are not taken whole
  size_t messages_ = 0;      // that came and are not taken
  bool has_sends_ = false;
  bool has_receives_ = false;
  // Sent, less what the peer has given credits for.
  int data_under_way_ = 0;
  int messages_under_way_ = 0;
};

}  // namespace
}  // namespace ar_grpc::fabric::verbs

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ar_grpc::fabric::verbs;  // NOLINT: an entry point
  static_cast<void>(DecodeFrame(data, size));
  // Made once: an input does not touch most of it.
  static auto* const buffers = new std::vector<uint8_t>(kConnectionBytes);
  ar_grpc::fuzz::Input input(data, size);
  Owner(buffers->data()).Run(&input);
  return 0;
}
