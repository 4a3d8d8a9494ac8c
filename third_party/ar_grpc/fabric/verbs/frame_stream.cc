// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/frame_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ar_grpc::fabric::verbs {
namespace {

Status Broken(const char* what) { return Status(StatusCode::kInvalidArgument, what); }

}  // namespace

FrameStream::FrameStream(uint8_t* buffers) : buffers_(buffers) {
  for (uint32_t i = 0; i < kFirstDataSendBuffers; ++i) free_data_.push_back(i);
  for (uint32_t i = kDataSendBuffers; i < kSendBuffers; ++i) free_small_.push_back(i);
}

uint8_t* FrameStream::send_buffer(uint32_t index) const {
  if (index < kDataSendBuffers) {
    return buffers_ + size_t{kDataSendBuffers - 1 - index} * kFrameBytes;
  }
  return buffers_ + kSmallBegin + size_t{index - kDataSendBuffers} * kSmallFrameBytes;
}

void FrameStream::FreeSendBuffer(uint32_t index) {
  (index < kDataSendBuffers ? free_data_ : free_small_).push_back(index);
}

void FrameStream::AddSendBuffers() {
  for (uint32_t i = kFirstDataSendBuffers; i < kDataSendBuffers; ++i) free_data_.push_back(i);
  has_all_sends_ = true;
}

void FrameStream::AddReceiveBuffers() {
  for (uint32_t i = kFirstReceiveBuffers; i < kReceiveBuffers; ++i) to_post_.push_back(i);
  data_taken_.Grow();
  messages_taken_.Grow();
}

size_t FrameStream::DataRoom() const {
  return std::min<size_t>(data_to_send_.left(), free_data_.size());
}

size_t FrameStream::MessageRoom() const {
  const size_t buffers =
      free_small_.size() > kReservedSendBuffers ? free_small_.size() - kReservedSendBuffers : 0;
  return std::min<size_t>(messages_to_send_.left(), buffers);
}

bool FrameStream::DataIsFull() const {
  const size_t worth_waking = has_all_sends_ ? data_to_send_.worth_waking() : 1;
  return data_refused_ && DataRoom() < worth_waking;
}

bool FrameStream::MessagesAreFull() const {
  return message_refused_ && MessageRoom() < messages_to_send_.worth_waking();
}

bool FrameStream::WantsAnswers(bool writer_waits) const {
  const size_t worth_waking = has_all_sends_ ? data_to_send_.worth_waking() : 1;
  return free_small_.size() <= kReservedSendBuffers + kSignalEvery ||
         (writer_waits && free_data_.size() < worth_waking);
}

uint32_t FrameStream::TakeSmall(size_t leave) {
  if (free_small_.size() <= leave) return kNoBuffer;
  const uint32_t index = free_small_.back();
  free_small_.pop_back();
  return index;
}

std::vector<uint32_t> FrameStream::TakeForData(size_t most) {
  std::vector<uint32_t> taken(std::min(most, DataRoom()));
  data_refused_ = taken.size() < most;
  for (uint32_t& index : taken) {
    data_to_send_.Take();
    index = free_data_.back();
    free_data_.pop_back();
  }
  return taken;
}

uint32_t FrameStream::TakeForMessage() {
  message_refused_ = MessageRoom() == 0;
  if (message_refused_) return kNoBuffer;
  messages_to_send_.Take();
  return TakeSmall(kReservedSendBuffers);
}

uint32_t FrameStream::TakeForCredits() {
  if (!data_taken_.worth_a_frame() && !messages_taken_.worth_a_frame()) return kNoBuffer;
  // The last one is the close's.
  return TakeSmall(1);
}

uint32_t FrameStream::TakeForClose() { return TakeSmall(0); }

uint32_t FrameStream::Seal(uint32_t buffer, FrameKind kind, size_t payload) {
  FrameHeader header;
  header.kind = kind;
  header.data_credits = data_taken_.TakeDue();
  header.message_credits = messages_taken_.TakeDue();
  header.payload = static_cast<uint16_t>(payload);
  Encode(header, send_buffer(buffer));
  return static_cast<uint32_t>(kFrameHeaderBytes + payload);
}

bool FrameStream::SignalNext() {
  if (++since_signal_ < (has_all_sends_ ? kSignalEvery : kFirstSignalEvery)) return false;
  since_signal_ = 0;
  return true;
}

Status FrameStream::TakeFrame(uint32_t index, size_t size) {
  const StatusOr<FrameHeader> header = DecodeFrame(receive_buffer(index), size);
  if (!header.ok()) return header.status();
  if (peer_closed_) return Broken("the peer sent a frame over RDMA after its last one");
  if (!data_to_send_.Give(header->data_credits) ||
      !messages_to_send_.Give(header->message_credits)) {
    return Broken("the peer gave back more credits over RDMA than it had been given frames");
  }
  const auto begin = static_cast<uint32_t>(kFrameHeaderBytes);
  switch (header->kind) {
    case FrameKind::kData:
      if (!data_taken_.Come()) return Broken("the peer sent data over RDMA without a credit");
      held_.push_back({index, begin, begin + header->payload});
      readable_ += header->payload;
      return Status();
    case FrameKind::kMessage: {
      if (!messages_taken_.Come()) {
        return Broken("the peer sent a message over RDMA without a credit");
      }
      Message message;
      std::memcpy(message.bytes.data(), receive_buffer(index) + begin, Message::kSize);
      messages_.push_back(message);
      break;
    }
    case FrameKind::kClose:
      peer_closed_ = true;
      break;
    case FrameKind::kCredits:
      break;
  }
  to_post_.push_back(index);
  return Status();
}

std::vector<uint32_t> FrameStream::TakeToPost() { return std::exchange(to_post_, {}); }

FrameStream::Bytes FrameStream::Front() const {
  if (held_.empty()) return {};
  const Held& held = held_.front();
  return {receive_buffer(held.index) + held.begin, held.end - held.begin};
}

void FrameStream::Skip(size_t size) {
  Held& held = held_.front();
  held.begin += static_cast<uint32_t>(size);
  readable_ -= size;
  if (held.begin < held.end) return;
  to_post_.push_back(held.index);
  held_.pop_front();
  data_taken_.Taken();
}

Message FrameStream::TakeMessage() {
  const Message message = messages_.front();
  messages_.pop_front();
  messages_taken_.Taken();
  return message;
}

}  // namespace ar_grpc::fabric::verbs
