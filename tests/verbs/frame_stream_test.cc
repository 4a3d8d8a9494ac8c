// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Streams in frames between two ends, over a wire and devices that are queues: no buffer that is
// sent finds none posted, whatever is read when; and an end whose peer keeps to nothing.

#include "third_party/ar_grpc/fabric/verbs/frame_stream.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tests/verbs/end_on_device.h"
#include "tests/verbs/pair.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

// Whatever happens in whatever order, and in the end all of it has come. Ends grow at any time, or
// never.
void AtRandom() {
  std::mt19937 random(11);
  for (int round = 0; round < 28; ++round) {
    EndOnDevice ends[2] = {EndOnDevice(0), EndOnDevice(1)};
    const bool grows[2] = {round % 4 < 2, round % 2 == 0};
    std::deque<std::string> wires[2];  // by who reads
    // How seldom an end reads, from always to hardly ever.
    const unsigned idle = 1 + random() % 20;
    const auto settle = [&](int end) {
      ends[end].SendCredits(&wires[1 - end]);
      ends[end].Complete();
    };
    for (int step = 0; step < 1500; ++step) {
      const int end = static_cast<int>(random() % 2);
      if (grows[end] && random() % 50 == 0) ends[end].Grow();
      switch (random() % 6) {
        case 0:
          ends[end].SendData(1 + random() % 20, &random, &wires[1 - end]);
          break;
        case 1:
          ends[end].SendMessage(&wires[1 - end]);
          break;
        case 2:
          if (random() % idle == 0) ends[end].Read(random() % 40000);
          break;
        case 3:
          if (random() % idle == 0) ends[end].TakeMessages();
          break;
        case 4:
          ends[end].SendCredits(&wires[1 - end]);
          ends[end].Complete();
          break;
        default:
          for (size_t i = random() % 8; i > 0 && !wires[end].empty(); --i) {
            ends[end].Arrive(&wires[end]);
          }
          if (random() % 3 == 0) ends[end].Poll();
      }
    }
    // Each end can send again and again once all is taken: no credit and no buffer is lost.
    for (int last = 0; last < 50; ++last) {
      for (const int end : {0, 1}) {
        ends[end].Poll();
        while (!wires[end].empty()) ends[end].Land(&wires[end]);
        ends[end].Read(SIZE_MAX);
        ends[end].TakeMessages();
        settle(end);
      }
      for (const int end : {0, 1}) {
        if (last < 40) ends[end].SendData(1, &random, &wires[1 - end]);
        if (last < 40) ends[end].SendMessage(&wires[1 - end]);
      }
    }
    for (const int end : {0, 1}) {
      Check(ends[end].read() == ends[1 - end].sent(), "bytes are lost");
      Check(ends[end].messages_taken() == ends[1 - end].messages_sent(), "messages are lost");
      Check(!ends[end].stream().DataIsFull(), "credits are lost");
      Check(!ends[end].stream().MessagesAreFull(), "credits of messages are lost");
      if (grows[0] && grows[1]) {
        Check(ends[end].stream().DataRoom() >= CreditsWorthAFrame(kDataWindow), "a small window");
        Check(ends[end].bytes() == kConnectionBytes, "not all buffers are used");
      } else if (!grows[0] && !grows[1]) {
        Check(ends[end].bytes() == kFirstBytes, "more buffers than there are");
      }
      Check(ends[end].unanswered() < kSignalEvery, "frames whose end nobody hears of");
      Check(ends[end].signaled() <= ends[end].frames() / kFirstSignalEvery, "too many answers");
    }
  }
}

// A reader that stops stops its writer, at the window; messages pass all the same.
void AWindowIsAWindow() {
  EndOnDevice writer(0);
  EndOnDevice reader(1);
  std::deque<std::string> wire;
  std::deque<std::string> back;
  std::mt19937 random(1);
  // First it is a small one, which the reader makes whole.
  writer.SendData(1000, &random, &wire);
  Check(wire.size() == kFirstDataWindow, "as many frames as a first window has");
  while (!wire.empty()) reader.Land(&wire);
  Check(!reader.stream().wants_receive_buffers(), "more of what nobody reads");
  reader.Read(1);
  Check(!reader.stream().wants_receive_buffers(), "no frame is taken");
  reader.Read(reader.stream().Front().size);
  Check(reader.stream().wants_receive_buffers(), "a window that is used up");
  Check(!writer.stream().wants_send_buffers(), "of no use for a small window");
  reader.Grow();
  reader.SendCredits(&back);
  Check(back.size() == 1, "new credits are worth a frame");
  writer.Land(&back);
  writer.Complete();
  writer.SendData(1000, &random, &wire);
  Check(wire.size() == kFirstDataSendBuffers, "no more than it has buffers");
  Check(writer.stream().wants_send_buffers(), "a window that is larger");
  writer.Grow();
  writer.SendData(1000, &random, &wire);
  // All but those that are not read.
  Check(wire.size() == kDataWindow - kFirstDataWindow + 1u, "as many frames as the window has");
  Check(writer.stream().DataIsFull() && writer.stream().MessageRoom() > 0, "room");
  writer.SendMessage(&wire);
  while (!wire.empty()) reader.Land(&wire);
  writer.Complete();
  reader.TakeMessages();
  Check(reader.messages_taken() == 1, "a message behind data that nobody reads");
  reader.SendCredits(&back);
  Check(back.empty(), "a frame for one credit");
  while (reader.stream().readable() > 0 && back.empty()) {
    reader.Read(reader.stream().Front().size);
    reader.SendCredits(&back);
  }
  Check(back.size() == 1, "half of a window is worth a frame");
  writer.Land(&back);
  Check(writer.stream().DataRoom() == CreditsWorthAFrame(kDataWindow), "credits that came back");
  Check(!writer.stream().DataIsFull(), "half of it is free again");
}

// All that a peer may send arrives before the end looks at any of it, and each has its buffer:
// credits for what the end has sent, in as many frames as that can be, both windows, and the close.
void TheMostThatIsUnread(bool whole) {
  EndOnDevice sender(0);
  EndOnDevice peer(1);
  std::deque<std::string> wire;
  std::deque<std::string> back;
  std::mt19937 random(3);
  const auto exchange = [&](EndOnDevice* from, EndOnDevice* to) {
    std::deque<std::string> words;
    for (int i = 0; i < 100; ++i) {
      from->SendData(1, &random, &words);
      from->SendMessage(&words);
      while (!words.empty()) to->Land(&words);
      from->Complete();
      to->Read(SIZE_MAX);
      to->TakeMessages();
      to->Grow();
      to->SendCredits(&words);
      while (!words.empty()) from->Land(&words);
      to->Complete();
      from->Grow();
    }
  };
  if (whole) {
    exchange(&sender, &peer);
    exchange(&peer, &sender);
  }
  const auto send_all = [&random](EndOnDevice* end, std::deque<std::string>* words) {
    for (int i = 0; i < 100; ++i) {
      end->SendData(1, &random, words);
      end->SendMessage(words);
      end->Complete();
    }
  };
  send_all(&sender, &wire);
  while (!wire.empty()) peer.Land(&wire);
  while (peer.stream().readable() > 0) {
    peer.Read(peer.stream().Front().size);
    peer.SendCredits(&back);
  }
  while (peer.stream().has_message()) {
    peer.TakeMessage();
    peer.SendCredits(&back);
  }
  peer.Grow();
  peer.SendCredits(&back);
  Check(back.size() == (whole ? kCreditFrames : 3u), "as many frames of credits as there can be");
  send_all(&peer, &back);
  peer.SendClose(&back);
  Check(back.size() == (whole ? kReceiveBuffers : kFirstReceiveBuffers - 1), "all that it may");
  while (!back.empty()) sender.Arrive(&back);
  sender.Poll();
  Check(sender.stream().peer_closed(), "all has come");
}

// A sender that is refused does not wait for room that its peer need not tell it of.
void NoRoomIsAwaitedInVain() {
  EndOnDevice sender(0);
  EndOnDevice peer(1);
  std::deque<std::string> wire;
  std::deque<std::string> back;
  std::mt19937 random(3);
  sender.SendData(100, &random, &wire);
  while (!wire.empty()) peer.Land(&wire);
  sender.Complete();
  // One credit comes with a frame of the peer's own, and the others are less than a frame is sent
  // for.
  peer.Read(peer.stream().Front().size);
  peer.SendData(1, &random, &back);
  peer.Read(SIZE_MAX);
  peer.SendCredits(&back);
  Check(back.size() == 1, "a frame for what is less than it is worth");
  sender.Land(&back);
  Check(sender.stream().DataRoom() == 1 && !sender.stream().DataIsFull(), "a sender sleeps");
}

// What 256 peers take of a device, and that no queue of any is larger than what is asked for.
void TheArithmetic() {
  static_assert(kReceiveBuffers == 16 + 16 + 4 + 1);
  static_assert(kFirstReceiveBuffers == 4 + 2 + 4 + 1);
  static_assert(kSendBuffers == (16 + 4) + (16 + 4 + 5));
  static_assert(kConnectionBytes == (20 + 37) * 8192 + 4096);
  static_assert(kFirstBytes == (4 + 11) * 8192 + 4096);
  static_assert(kFrameHeaderBytes + Message::kSize <= kSmallFrameBytes);
  for (uint16_t window = 1; window < 300; ++window) {
    const uint16_t worth = CreditsWorthAFrame(window);
    Check(!IsAwaitedInVain(window, worth, worth), "a sender sleeps for ever");
    for (uint16_t first = 1; first <= window; ++first) {
      Check(!IsAwaitedInVain(first, first, 1), "a sender sleeps for ever");
      // Credits that are on their way, in frames of their own, never exceed what there are: one
      // frame of a first window, and as many of the whole one as what is left is worth; or none of
      // the first.
      const uint32_t most = MostCreditFrames(first, window);
      Check((most + 1) * worth > window && first + most * worth > window, "frames of credits");
    }
  }
  for (const size_t peers : {size_t{1}, size_t{256}}) {
    std::printf(
        "%zu peers: %zu KiB registered, %zu KiB where all are busy; %zu receive and %zu "
        "send requests\n",
        peers, peers * kFirstBytes >> 10, peers * kConnectionBytes >> 10, peers * kReceiveBuffers,
        peers * kSendBuffers);
  }
}

std::string FrameOf(const FrameHeader& header, size_t payload) {
  std::string frame(kFrameHeaderBytes + payload, 'x');
  Encode(header, reinterpret_cast<uint8_t*>(frame.data()));
  return frame;
}

Status Take(FrameStream* stream, uint32_t index, const std::string& frame) {
  std::memcpy(stream->receive_buffer(index), frame.data(), frame.size());
  return stream->TakeFrame(index, frame.size());
}

void LyingPeers() {
  const auto invalid = StatusCode::kInvalidArgument;
  std::vector<uint8_t> memory(kConnectionBytes);
  const FrameHeader data{FrameKind::kData, 0, 0, 5};
  const FrameHeader message{FrameKind::kMessage, 0, 0, Message::kSize};
  {
    FrameStream stream(memory.data());
    for (uint32_t i = 0; i < kFirstDataWindow; ++i) {
      CheckCode(Take(&stream, i, FrameOf(data, 5)), StatusCode::kOk);
    }
    CheckCode(Take(&stream, 20, FrameOf(data, 5)), invalid, "data over RDMA without a credit");
    // Nor with one that it was not given yet.
    stream.AddReceiveBuffers();
    CheckCode(Take(&stream, 20, FrameOf(data, 5)), invalid, "data over RDMA without a credit");
    stream.Seal(stream.TakeForCredits(), FrameKind::kCredits, 0);
    for (uint32_t i = kFirstDataWindow; i < kDataWindow; ++i) {
      CheckCode(Take(&stream, i, FrameOf(data, 5)), StatusCode::kOk);
    }
    CheckCode(Take(&stream, 20, FrameOf(data, 5)), invalid, "data over RDMA without a credit");
  }
  {
    FrameStream stream(memory.data());
    for (uint32_t i = 0; i < kFirstMessageWindow; ++i) {
      CheckCode(Take(&stream, i, FrameOf(message, Message::kSize)), StatusCode::kOk);
    }
    CheckCode(Take(&stream, 20, FrameOf(message, Message::kSize)), invalid, "without a credit");
  }
  for (const FrameHeader& more :
       {FrameHeader{FrameKind::kCredits, kDataWindow - kFirstDataWindow + 1, 0, 0},
        FrameHeader{FrameKind::kCredits, 0, kMessageWindow - kFirstMessageWindow + 1, 0},
        FrameHeader{FrameKind::kCredits, UINT16_MAX, 0, 0}}) {
    FrameStream stream(memory.data());
    CheckCode(Take(&stream, 0, FrameOf(more, 0)), invalid, "more credits");
  }
  {
    FrameStream stream(memory.data());
    CheckCode(Take(&stream, 0, FrameOf({FrameKind::kClose, 0, 0, 0}, 0)), StatusCode::kOk);
    Check(stream.peer_closed(), "closed");
    CheckCode(Take(&stream, 1, FrameOf(data, 5)), invalid, "after its last one");
  }
  // Bytes that nobody wrote: what is taken has its payload within the frame.
  std::mt19937 random(5);
  for (int round = 0; round < 50000; ++round) {
    FrameStream stream(memory.data());
    std::string frame =
        FrameOf(round % 2 == 0 ? data : message, round % 2 == 0 ? 5 : Message::kSize);
    for (unsigned i = 0; i <= random() % 3; ++i) {
      frame[random() % kFrameHeaderBytes] = static_cast<char>(random());
    }
    if (round % 5 == 0) frame.resize(random() % (frame.size() + 4));
    const Status status = Take(&stream, kReceiveBuffers - 1, frame);
    if (!status.ok()) CheckCode(status, invalid);
    Check(stream.readable() == 0 || stream.readable() + kFrameHeaderBytes == frame.size(), "bytes");
  }
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  TheArithmetic();
  AWindowIsAWindow();
  TheMostThatIsUnread(false);
  TheMostThatIsUnread(true);
  NoRoomIsAwaitedInVain();
  LyingPeers();
  AtRandom();
  std::puts("ok frame stream");
}
