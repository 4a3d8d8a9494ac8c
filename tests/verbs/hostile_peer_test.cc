// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A peer that was attached in order and then posts what it likes, with a queue pair and a
// protection domain of its own, as another process would have: which accesses to this process's
// memory its device refuses, and which it does not. docs/security.md says the same in words.

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/verbs/two_hosts.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"
#include "third_party/ar_grpc/fabric/verbs/flow_control.h"
#include "third_party/ar_grpc/fabric/verbs/frame.h"
#include "third_party/ar_grpc/fabric/verbs/pair_states.h"
#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"
#include "third_party/ar_grpc/fabric/verbs/registration.h"
#include "third_party/ar_grpc/fabric/verbs/remote_key.h"
#include "third_party/ar_grpc/fabric/verbs/stream_frame.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr size_t kSlab = 64 << 10;
constexpr uint8_t kSecret = 0x5e;
// Of a completion.
constexpr int kRefusedAccess = abi::kRemoteAccessError;
constexpr int kRefusedRequest = abi::kRemoteInvalidRequest;
constexpr int kRdmaWriteWithImmediate = 1;
constexpr unsigned kLowBits = 256;  // of an rkey, which Soft-RoCE draws; the others count

std::string Frame(FrameKind kind, uint16_t data_credits, size_t payload) {
  FrameHeader header;
  header.kind = kind;
  header.data_credits = data_credits;
  header.payload = static_cast<uint16_t>(payload);
  std::string frame(kFrameHeaderBytes + payload, 'x');
  Encode(header, reinterpret_cast<uint8_t*>(frame.data()));
  return frame;
}

// The queue pair of a peer whose hello this end has taken.
class RawPeer {
 public:
  RawPeer() : library_(*Value(LoadLibrary())), device_(Value(Device::Open(library_))) {
    region_ = Value(
        MemoryRegion::Register(device_, bytes_.data(), bytes_.size(), abi::kAccessLocalWrite));
    abi::QueuePairInit init = {};
    init.capacity.max_send_wr = init.capacity.max_recv_wr = 128;
    init.capacity.max_send_sge = init.capacity.max_recv_sge = 1;
    init.type = abi::kReliableConnection;
    queue_ = library_.create_cq(device_->context(), 256, nullptr, nullptr, 0);
    init.send_queue = init.receive_queue = queue_;
    pair_ = library_.create_qp(device_->domain(), &init);
    Check(queue_ != nullptr && pair_ != nullptr, "a queue pair");
    CheckCode(Initialize(*device_, pair_), StatusCode::kOk);
    const auto port = Value(device_->QueryPort());
    End server;
    const auto accept = Value(Get().Accept(server.events()));
    const Hello peers = Value(DecodeHello(*server.NextFrame()));
    peers_seal_ = peers.seal;
    const Route route = Value(FindRoute(port.address, peers.address));
    CheckCode(ConnectTo(*device_, pair_, port, route, 1, peers), StatusCode::kOk);
    Hello hello = peers;
    hello.number = pair_->number;
    hello.first_psn = 1;
    accept->TakeFrame(Encode(hello));
    Check(IsReadyFrame(*server.NextFrame()), "not connected");
    Check(Send(Frame(FrameKind::kCredits, 0, 0)) == abi::kCompleted, "the greeting");
    victim_ = Value(server.Take());
  }
  ~RawPeer() {
    library_.destroy_qp(pair_);
    library_.destroy_cq(queue_);
    CloseNow(*victim_);
  }

  Connection& victim() { return *victim_; }
  std::vector<uint8_t>& bytes() { return bytes_; }
  // What the victim tells this peer of its memory.
  RemoteKey KeyOf(const std::shared_ptr<Registration>& registration) {
    return Value(DecodeKey(Value(victim_->Export(registration)), peers_seal_));
  }

  // How a request ends: a completion's status.
  int Do(int opcode, uint64_t address, uint32_t rkey, size_t size) {
    abi::Piece piece = {reinterpret_cast<uintptr_t>(bytes_.data()), static_cast<uint32_t>(size),
                        region_->lkey()};
    abi::SendRequest send = {};
    send.pieces = &piece;
    send.count = size > 0 ? 1 : 0;
    send.opcode = opcode;
    send.flags = abi::kSignaled;
    send.remote_address = address;
    send.rkey = rkey;
    abi::SendRequest* refused = nullptr;
    Check(pair_->context->operations.post_send(pair_, &send, &refused) == 0, "post_send");
    abi::WorkCompletion completion = {};
    const auto begin = std::chrono::steady_clock::now();
    while (queue_->context->operations.poll_cq(queue_, 1, &completion) == 0) {
      Check(Seconds(begin) < 20, "no completion");
    }
    return completion.status;
  }
  int Read(uint64_t address, uint32_t rkey, size_t size) {
    std::fill(bytes_.begin(), bytes_.end(), 0);
    return Do(abi::kRdmaRead, address, rkey, size);
  }
  int Write(uint64_t address, uint32_t rkey, size_t size) {
    std::fill(bytes_.begin(), bytes_.end(), 0xbb);
    return Do(abi::kRdmaWrite, address, rkey, size);
  }
  // A frame of the stream, of any bytes.
  int Send(const std::string& frame) {
    std::memcpy(bytes_.data(), frame.data(), frame.size());
    return Do(abi::kSend, 0, 0, frame.size());
  }
  bool HasOnlySecrets(size_t size) {
    return std::all_of(bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(size),
                       [](uint8_t byte) { return byte == kSecret; });
  }

 private:
  const Library& library_;
  const std::shared_ptr<Device> device_;
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(4 * kSlab);
  std::shared_ptr<MemoryRegion> region_;
  abi::CompletionQueue* queue_ = nullptr;
  abi::QueuePair* pair_ = nullptr;
  uint64_t peers_seal_ = 0;
  std::unique_ptr<Connection> victim_;
};

// Slabs of one segment, as the arena's: two for reading, and one that nobody registered.
struct Slabs {
  std::shared_ptr<memory::Segment> segment = Value(memory::Segment::Create(3 * kSlab));
  std::shared_ptr<Registration> offered;
  std::shared_ptr<Registration> other;
  Slabs() {
    std::memset(segment->data(), kSecret, 3 * kSlab);
    offered = Value(Get().Register(segment, 0, kSlab, Access::kRead));
    other = Value(Get().Register(segment, kSlab, kSlab, Access::kRead));
  }
  uint64_t address(size_t offset) const {
    return reinterpret_cast<uintptr_t>(segment->data()) + offset;
  }
  bool unchanged() const {
    return std::all_of(segment->data(), segment->data() + 3 * kSlab,
                       [](uint8_t byte) { return byte == kSecret; });
  }
};

void IsClosed(RawPeer& peer, int line) {
  const auto begin = std::chrono::steady_clock::now();
  while (!peer.victim().closed()) {
    Check(Seconds(begin) < 10, "the victim's end goes on", line);
    // Else the reactor comes to it.
    static_cast<void>(peer.victim().Readable().ok());
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// The victim's end is over after that, by its device's word, and of its memory nothing has changed.
void IsRefused(RawPeer& peer, const Slabs& slabs, int status, int line = __builtin_LINE()) {
  Check(status == kRefusedAccess || status == kRefusedRequest,
        "completed with " + std::to_string(status), line);
  Check(slabs.unchanged(), "the victim's memory has changed", line);
  Check(!peer.HasOnlySecrets(1), "a byte has come", line);
  IsClosed(peer, line);
}

// --- what succeeds ---

void ReadsAllOfTheRegistration() {
  const Slabs slabs;
  RawPeer peer;
  // An offer would name a part; the key is of the whole slab.
  const RemoteKey key = peer.KeyOf(slabs.offered);
  Check(key.address == slabs.address(0) && key.size == kSlab, "what the key names");
  Check(peer.Read(key.address, key.rkey, kSlab) == abi::kCompleted, "the slab");
  Check(peer.HasOnlySecrets(kSlab), "its bytes");
  Check(!peer.victim().closed(), "the victim does not learn of it");
}

void ReadsBehindAGuessedKey() {
  const Slabs slabs;
  RawPeer told;
  RawPeer peer;
  const RemoteKey key = told.KeyOf(slabs.other);  // another peer's
  Check(peer.Read(key.address, key.rkey, kSlab) == abi::kCompleted, "the other slab");
  Check(peer.HasOnlySecrets(kSlab), "its bytes");
}

void WritesWhatIsForWriting() {
  const auto segment = Value(memory::Segment::Create(kSlab));
  const auto registration = Value(Get().Register(segment, 0, kSlab, Access::kWrite));
  RawPeer told;
  RawPeer peer;
  const RemoteKey key = told.KeyOf(registration);
  Check(peer.Write(key.address, key.rkey, kSlab) == abi::kCompleted, "landing memory");
  Check(segment->data()[kSlab - 1] == 0xbb, "its bytes");
}

// --- what is refused ---

void ReadsOutside() {
  const Slabs slabs;
  for (const auto& [offset, size] : {std::pair<int64_t, size_t>{kSlab - 1, 2},
                                     {kSlab, 1},
                                     {-1, 1},
                                     {-1, 2},
                                     {0, kSlab + 1},
                                     {kSlab, kSlab},     // the other slab
                                     {2 * kSlab, 1}}) {  // what is not registered
    RawPeer peer;
    const RemoteKey key = peer.KeyOf(slabs.offered);
    IsRefused(peer, slabs, peer.Read(key.address + offset, key.rkey, size));
  }
}

void WritesToWhatIsForReading() {
  const Slabs slabs;
  for (const size_t size : {size_t{1}, size_t{4096}, kSlab}) {
    for (const int opcode : {abi::kRdmaWrite, kRdmaWriteWithImmediate}) {
      RawPeer peer;
      const RemoteKey key = peer.KeyOf(slabs.offered);
      std::fill(peer.bytes().begin(), peer.bytes().end(), 0xbb);
      IsRefused(peer, slabs, peer.Do(opcode, key.address, key.rkey, size));
    }
  }
}

void ReadsWhatWasReleased() {
  Slabs slabs;
  RemoteKey key;
  {
    RawPeer peer;
    key = peer.KeyOf(slabs.offered);
    slabs.offered.reset();
    IsRefused(peer, slabs, peer.Read(key.address, key.rkey, 1));
  }
  // The same memory, registered again, has another key.
  slabs.offered = Value(Get().Register(slabs.segment, 0, kSlab, Access::kRead));
  RawPeer peer;
  Check(peer.KeyOf(slabs.offered).rkey != key.rkey, "the key is used again at once");
  IsRefused(peer, slabs, peer.Read(key.address, key.rkey, 1));
}

void GuessesKeys() {
  const Slabs slabs;
  RawPeer told;
  const RemoteKey key = told.KeyOf(slabs.other);
  // Each wrong guess costs a connection.
  for (unsigned guess = 1; guess < kLowBits; guess += 16) {
    RawPeer peer;
    IsRefused(peer, slabs, peer.Read(key.address, key.rkey ^ guess, 1));
  }
  for (const uint32_t guess : {0u, 1u, UINT32_MAX}) {
    RawPeer peer;
    IsRefused(peer, slabs, peer.Read(key.address, guess, 1));
  }
}

// As the buffers of connections are registered: for this end alone.
void ReadsWhatIsNotForPeers() {
  const Slabs slabs;
  auto& device =
      const_cast<Device&>(dynamic_cast<const VerbsRegistration&>(*slabs.offered).device());
  const auto region = Value(MemoryRegion::Register(
      device.shared_from_this(), slabs.segment->data() + 2 * kSlab, kSlab, abi::kAccessLocalWrite));
  RawPeer reader;
  IsRefused(reader, slabs, reader.Read(region->start(), region->rkey(), 1));
  RawPeer writer;
  IsRefused(writer, slabs, writer.Write(region->start(), region->rkey(), 1));
}

// --- the stream ---

void BreaksTheStream(const std::string& frame, int times, const std::string& text,
                     int line = __builtin_LINE()) {
  RawPeer peer;
  for (int i = 0; i < times; ++i) {
    // Not answered in order once the victim has ended it.
    if (const int status = peer.Send(frame); status != abi::kCompleted) break;
  }
  IsClosed(peer, line);
  const iovec none = {nullptr, 0};
  CheckCode(peer.victim().Write(&none, 1).status(), StatusCode::kUnavailable, text, line);
}

void SendsWhatIsNoFrame() {
  BreaksTheStream("", 1, "malformed frame");
  BreaksTheStream("x", 1, "malformed frame");
  BreaksTheStream(std::string(kFrameBytes, '\1'), 1, "malformed frame");
  BreaksTheStream(Frame(FrameKind::kData, 0, 0), 1, "malformed frame");
  BreaksTheStream(Frame(FrameKind::kData, 0, 9).substr(0, 16), 1, "malformed frame");
  // More than a window may grow by.
  BreaksTheStream(Frame(FrameKind::kCredits, kDataWindow - kFirstDataWindow + 1, 0), 1,
                  "more credits over RDMA than");
  BreaksTheStream(Frame(FrameKind::kData, 0, 100), kFirstDataWindow + 1, "data over RDMA without");
  // Longer than any buffer: the device says so.
  BreaksTheStream(std::string(2 * kFrameBytes, 'x'), 1, "RDMA connection has failed");
}

// Takes a receive buffer, and says a size that is no frame's.
void WritesWithAnImmediate() {
  const auto segment = Value(memory::Segment::Create(4 * kSlab));
  const auto registration = Value(Get().Register(segment, 0, 4 * kSlab, Access::kWrite));
  for (const size_t size : {size_t{0}, size_t{8}, size_t{kFrameBytes}, 4 * kSlab}) {
    RawPeer peer;
    const RemoteKey key = peer.KeyOf(registration);
    Check(peer.Do(kRdmaWriteWithImmediate, key.address, key.rkey, size) == abi::kCompleted,
          "a write");
    IsClosed(peer, __LINE__);
    const iovec none = {nullptr, 0};
    CheckCode(peer.victim().Write(&none, 1).status(), StatusCode::kUnavailable, "malformed frame");
  }
}

// The victim's SEND finds no buffer, and its device asks again for a while.
void PostsNoBuffers() {
  RawPeer peer;
  const std::vector<uint8_t> bytes(kSignalEvery * kFrameBytes);
  const iovec part = {const_cast<uint8_t*>(bytes.data()), bytes.size()};
  Check(Value(peer.victim().Write(&part, 1)) > 0, "the victim has room");
  IsClosed(peer, __LINE__);
  CheckCode(peer.victim().Write(&part, 1).status(), StatusCode::kUnavailable,
            "RNR retry counter exceeded");
}

void Run(const char* name, const std::function<void()>& one) {
  const auto begin = std::chrono::steady_clock::now();
  one();
  std::printf("ok hostile: %s (%.2f s)\n", name, Seconds(begin));
  std::fflush(stdout);
}

// Its frames come over TCP, and nothing gets to its device: as behind a firewall.
void SaysThatItIsConnected() {
  const auto device = Value(Device::Open(*Value(LoadLibrary())));
  const auto pair = Value(QueuePair::Create(device));
  End client;
  const auto connect = Value(Get().Connect(client.events()));
  connect->TakeFrame(Encode(pair->Describe(Value(device->QueryPort()))));
  Check(DecodeHello(*client.NextFrame()).ok(), "no hello");
  const auto begin = std::chrono::steady_clock::now();
  connect->TakeFrame(ReadyFrame());
  const StatusOr<std::unique_ptr<Connection>> made = client.Take();
  Check(Seconds(begin) > 1 && Seconds(begin) < 4, "too early, or too late");
  CheckCode(made.status(), StatusCode::kUnavailable);
  const std::string text = made.status().message();
  Check(text.find("the peer's RDMA device has not answered within 1500 ms: a firewall must let UDP "
                  "port 4791 pass") != std::string::npos,
        text.c_str());
  pair->Close({});
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  { const RawPeer peer; }                           // what a process makes once
  const Holdings before = AtRest();
  Run("reads all of a registration", ReadsAllOfTheRegistration);
  Run("reads behind a guessed key", ReadsBehindAGuessedKey);
  Run("writes what is for writing", WritesWhatIsForWriting);
  Run("reads outside: refused", ReadsOutside);
  Run("writes to what is for reading: refused", WritesToWhatIsForReading);
  Run("reads what was released: refused", ReadsWhatWasReleased);
  Run("guesses keys: refused", GuessesKeys);
  Run("reads what is not for peers: refused", ReadsWhatIsNotForPeers);
  Run("sends what is no frame", SendsWhatIsNoFrame);
  Run("writes with an immediate", WritesWithAnImmediate);
  Run("posts no buffers", PostsNoBuffers);
  Run("says that it is connected", SaysThatItIsConnected);
  UntilNothingIsLeftBut(before);
  std::printf("nothing is left\n");
}
