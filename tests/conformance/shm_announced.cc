// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Segments that peers announce, and the lies they may tell about them.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fstream>

#include "tests/conformance/shm_support.h"
#include "third_party/ar_grpc/base/wire.h"
#include "third_party/ar_grpc/fabric/shm/mapped_segments.h"
#include "third_party/ar_grpc/fabric/shm/peer_segments.h"
#include "third_party/ar_grpc/fabric/shm/shm.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::testing {
namespace {

constexpr size_t kSegmentSize = size_t{1} << 20;

std::shared_ptr<Registration> NewRegistration(size_t size = kSegmentSize) {
  return Value(shm::Get().Register(Value(memory::Segment::Create(size)), 0, size, Access::kRead));
}

Key KeyOf(uint64_t segment, uint64_t offset, uint64_t size) {
  Writer key;
  key.Put(segment);
  key.Put(offset);
  key.Put(size);
  return key.Take();
}

std::string Announce(uint64_t segment, uint64_t bytes) {
  shm::Announcement announcement;
  announcement.segment = segment;
  announcement.bytes = bytes;
  return Encode(announcement);
}

void APeerCannotWriteASegment() {
  const auto registration = NewRegistration();
  const memory::Segment& segment = *registration->segment();
  Forger forger;
  Outcome outcome = Forge(forger);
  const std::unique_ptr<Connection> connection = Value(std::move(outcome.accepted));
  Value(connection->Export(registration));
  const shm::Packet packet = AwaitPacket(outcome.socket.get());
  const shm::Announcement announced = Value(shm::DecodeAnnouncement(packet.bytes));
  Check(packet.fds.size() == 1 && announced.bytes == kSegmentSize, "announced");
  Value(connection->Export(registration));
  Value(connection->Export(
      Value(shm::Get().Register(registration->segment(), 4096, 4096, Access::kRead))));
  Check(!Readable(outcome.socket.get(), 20), "a segment is announced once");
  const int fd = packet.fds[0].get();
  Check(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED, "no writing");
  void* const seen = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, fd, 0);
  Check(seen != MAP_FAILED, "reading");
  Check(mprotect(seen, 4096, PROT_READ | PROT_WRITE) != 0, "no writing later either");
  Check(write(fd, "x", 1) < 0 && ftruncate(fd, 0) != 0, "nor through the descriptor");
  Check(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) != 0, "nor holes");
  segment.data()[0] = 42;
  Check(*static_cast<volatile uint8_t*>(seen) == 42, "the owner's writes show");
  munmap(seen, 4096);
}

size_t ReadOnlyMappings() {
  std::ifstream maps("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    count +=
        line.find(" r--s ") != std::string::npos && line.find("memfd:ar-grpc") != std::string::npos;
  }
  return count;
}

void ASegmentIsMappedOncePerProcess() {
  const auto registration = NewRegistration();
  const size_t before = ReadOnlyMappings();
  const auto use = [&](Pair& pair) {
    uint8_t byte;
    CheckOk(GetNow(*pair.connector, Value(pair.acceptor->Export(registration)), kSegmentSize - 1,
                   &byte, 1));
    CheckOk(GetNow(*pair.acceptor, Value(pair.connector->Export(registration)), 0, &byte, 1));
  };
  std::optional<Pair> one = Attach(shm::Get());
  std::optional<Pair> two = Attach(shm::Get());
  Check(ReadOnlyMappings() == before, "nothing is mapped before it is used");
  use(*one);
  use(*two);
  Check(ReadOnlyMappings() == before + 1, "one mapping for four ends");
  one.reset();
  Check(ReadOnlyMappings() == before + 1, "still used");
  two.reset();
  Check(ReadOnlyMappings() == before, "the last one unmaps");
}

// One lie to a fresh connection that has a good segment (1) before it: the Get of what it is about
// fails so, at once, and all else goes on.
void Lie(const std::vector<Said>& packets, StatusCode code, const std::string& text,
         int line = __builtin_LINE()) {
  const size_t before = OpenFdsAtRest();
  {
    const memory::SharedMemory good = Value(memory::CreateShared(kSegmentSize));
    good.data.get()[9] = 99;
    Forger forger;
    Outcome outcome = Forge(forger);
    const std::unique_ptr<Connection> connection = Value(std::move(outcome.accepted));
    CheckOk(shm::SendPacket(outcome.socket.get(), Announce(1, kSegmentSize), {good.fd.get()}));
    for (const Said& said : packets) {
      CheckOk(shm::SendPacket(outcome.socket.get(), said.bytes, said.fds), line);
    }
    uint8_t byte = 0;
    for (int i = 0; i < 2; ++i) {
      CheckCode(GetNow(*connection, KeyOf(2, 0, 100), 0, &byte, 1), code, text, line);
      CheckCode(connection->Map(KeyOf(2, 0, 100), 0, 1).status(), code, text, line);
    }
    CheckOk(GetNow(*connection, KeyOf(1, 0, kSegmentSize), 9, &byte, 1), line);
    Check(byte == 99 && !connection->closed(), "the good one stays good", line);
    Check(Value(WriteText(*connection, "x")) == 1, "the stream goes on", line);
    Value(connection->Export(NewRegistration()), line);
  }
  CheckNoFdLeaks(before, line);
}

void LyingAnnouncementsAreCaught() {
  const memory::SharedMemory memory = Value(memory::CreateShared(kSegmentSize));
  const memory::SharedMemory another = Value(memory::CreateShared(kSegmentSize));
  const int fd = memory.fd.get();
  const UniqueFd unsealed = Unsealed(kSegmentSize);
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  int pipe[2];
  Check(pipe2(pipe, O_CLOEXEC) == 0, "pipe");
  const UniqueFd reads(pipe[0]);
  const UniqueFd writes(pipe[1]);
  Lie({}, StatusCode::kInvalidArgument, "did not give");
  for (const uint64_t bytes :
       {uint64_t{0}, uint64_t{kSegmentSize} - 1, uint64_t{2} * kSegmentSize, uint64_t{1} << 44}) {
    Lie({{Announce(2, bytes), {fd}}}, StatusCode::kInternal, "where it stated");
  }
  Lie({{Announce(2, UINT64_MAX), {fd}}}, StatusCode::kResourceExhausted, "more than 64 segments");
  Lie({{Announce(2, shm::kMostBytes), {fd}}}, StatusCode::kResourceExhausted, "more than");
  Lie({{Announce(2, kSegmentSize), {unsealed.get()}}}, StatusCode::kInternal, "not sealed");
  Lie({{Announce(2, kSegmentSize), {null.get()}}}, StatusCode::kInternal, "not sealed");
  Lie({{Announce(2, kSegmentSize), {reads.get()}}}, StatusCode::kInternal, "not sealed");
  Lie({{Announce(2, kSegmentSize), {}}}, StatusCode::kInvalidArgument, "0 descriptors");
  Lie({{Announce(2, kSegmentSize), {fd, fd}}}, StatusCode::kInvalidArgument, "2 descriptors");
  Lie({{Announce(2, kSegmentSize), std::vector<int>(200, fd)}}, StatusCode::kInvalidArgument,
      "200 descriptors");
  Lie({{Announce(1, kSegmentSize), {fd}}}, StatusCode::kInvalidArgument, "twice");
  const std::string good = Announce(2, kSegmentSize);
  for (size_t size = 1; size < good.size(); ++size) {
    Lie({{good.substr(0, size), {fd}}}, StatusCode::kInvalidArgument, "attach packet");
  }
  Lie({{good + "x", {fd}}}, StatusCode::kInvalidArgument, "wrong length");
  Lie({{std::string(100000, 'x'), {fd}}}, StatusCode::kInvalidArgument, "wrong length");
  Lie({{Encode(shm::AttachAnswer()), {fd}}}, StatusCode::kInvalidArgument, "not a shared-memory");
  // An empty packet looks as if it had hung up.
  Lie({{"", {fd}}}, StatusCode::kUnavailable, "closed");
  // After a lie nothing is heard.
  Lie({{"lie", {}}, {good, {another.fd.get()}}}, StatusCode::kInvalidArgument, "attach packet");
  std::vector<Said> flood;
  for (uint64_t i = 0; i < shm::kMostSegments; ++i)
    flood.push_back({Announce(3 + i, kSegmentSize), {fd}});
  flood.push_back({good, {fd}});
  Lie(flood, StatusCode::kResourceExhausted, "more than 64 segments");
}

// However many connections they come by, peers do not use up this process's addresses.
void WhatIsMappedInAllIsLimited() {
  if (kSlowdown > 1) return;  // a sanitizer has no room for as much
  constexpr size_t kFit = shm::kMostMappedBytes / shm::kMostBytes;
  std::vector<std::unique_ptr<Connection>> connections;
  const auto map_more = [&connections] {
    const UniqueFd huge = Unsealed(shm::kMostBytes);
    Check(fcntl(huge.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0, "sealed");
    Forger forger;
    Outcome outcome = Forge(forger);
    connections.push_back(Value(std::move(outcome.accepted)));
    CheckOk(shm::SendPacket(outcome.socket.get(), Announce(1, shm::kMostBytes), {huge.get()}));
    return connections.back()->Map(KeyOf(1, 0, 4096), 0, 1).status();
  };
  for (size_t i = 0; i < kFit; ++i) CheckOk(map_more());
  for (int i = 0; i < 3; ++i) {
    CheckCode(map_more(), StatusCode::kResourceExhausted, "no address space");
  }
  connections.erase(connections.begin());
  CheckOk(map_more());
}

void LyingKeysReadNothingElse() {
  const memory::SharedMemory good = Value(memory::CreateShared(kSegmentSize));
  Forger forger;
  Outcome outcome = Forge(forger);
  const std::unique_ptr<Connection> connection = Value(std::move(outcome.accepted));
  CheckOk(shm::SendPacket(outcome.socket.get(), Announce(1, kSegmentSize), {good.fd.get()}));
  uint8_t byte;
  for (const auto& [offset, size] : {std::pair<uint64_t, uint64_t>{0, kSegmentSize + 1},
                                     {kSegmentSize, 1},
                                     {kSegmentSize - 1, 2},
                                     {UINT64_MAX, 1},
                                     {UINT64_MAX, UINT64_MAX},
                                     {1, UINT64_MAX},
                                     {0, UINT64_MAX}}) {
    for (const uint64_t at : {uint64_t{0}, size - 1}) {
      CheckCode(GetNow(*connection, KeyOf(1, offset, size), at, &byte, 1),
                StatusCode::kInvalidArgument);
    }
  }
  CheckOk(GetNow(*connection, KeyOf(1, 0, kSegmentSize), kSegmentSize - 1, &byte, 1));
}

// No more than a peer takes.
void ExportsAreLimited() {
  Pair pair = Attach(shm::Get());
  const size_t before = OpenFdsAtRest();
  std::vector<std::shared_ptr<Registration>> registrations;
  std::vector<Key> keys;
  for (size_t i = 0; i < shm::kMostSegments; ++i) {
    registrations.push_back(NewRegistration(4096));
    keys.push_back(Value(pair.acceptor->Export(registrations.back())));
  }
  const auto one_more = NewRegistration(4096);
  CheckCode(pair.acceptor->Export(one_more).status(), StatusCode::kResourceExhausted, "64");
  CheckOk(pair.connector->Export(one_more).status());
  uint8_t byte;
  for (const Key& key : keys) CheckOk(GetNow(*pair.connector, key, 4095, &byte, 1));
  registrations.clear();
  pair = Pair();
  Check(OpenFds() < before, "all is closed");
}

// The acceptor's owner may export before the connector knows that it is connected.
void AnnouncementsMayComeBeforeTheAnswer() {
  const auto listener = ListenHere();
  const auto registration = NewRegistration();
  registration->segment()->data()[5] = 55;
  for (int i = 0; i < 20; ++i) {
    const Token token = NewToken();
    std::unique_ptr<Connection> acceptor;
    Key key;
    listener->Expect(token, [&](MaybeConnection made) {
      acceptor = Value(std::move(made));
      key = Value(acceptor->Export(registration));
    });
    const auto connector = Value(ConnectNow(FrameFor(listener->address(), token)));
    uint8_t byte = 0;
    CheckOk(GetNow(*connector, key, 5, &byte, 1));
    Check(byte == 55, "the segment's");
  }
  const memory::SharedMemory memory = Value(memory::CreateShared(kSegmentSize));
  const std::vector<int> fd = {memory.fd.get()};
  const std::string answer = Encode(shm::AttachAnswer());
  CheckOk(ConnectToForged({{Announce(1, kSegmentSize), fd}, {answer, {}}}).status());
  CheckCode(ConnectToForged({{Announce(1, 1), fd}, {answer, {}}}).status(), StatusCode::kInternal);
  CheckCode(ConnectToForged({{Announce(1, kSegmentSize), {}}, {answer, {}}}).status(),
            StatusCode::kInvalidArgument);
}

}  // namespace

std::vector<Case> ShmAnnouncedCases() {
  return {
      {"a peer cannot write a segment", APeerCannotWriteASegment},
      {"a segment is mapped once per process", ASegmentIsMappedOncePerProcess},
      {"lying announcements are caught", LyingAnnouncementsAreCaught},
      {"what is mapped in all is limited", WhatIsMappedInAllIsLimited},
      {"lying keys read nothing else", LyingKeysReadNothingElse},
      {"exports are limited", ExportsAreLimited},
      {"announcements may come before the answer", AnnouncementsMayComeBeforeTheAnswer},
  };
}

}  // namespace ar_grpc::fabric::testing
