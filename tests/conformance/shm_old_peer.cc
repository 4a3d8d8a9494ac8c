// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Peers of the release before: version 1 of what is said to attach. They have the stream only.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

#include "tests/conformance/shm_support.h"
#include "third_party/ar_grpc/fabric/shm/shm.h"

namespace ar_grpc::fabric::testing {
namespace {

constexpr size_t kSegmentSize = size_t{1} << 20;

void CheckStreamOnly(Connection& ours, Connection& theirs) {
  Check(Value(theirs.ArmRead()), "sleeps");
  Check(Value(WriteText(ours, "to the old")) == 10, "written");
  AwaitWake(theirs);
  Check(Value(ReadText(theirs, 100)) == "to the old", "read");
  Check(Value(ours.ArmRead()), "sleeps");
  Check(Value(theirs.Post(Message())), "posted");
  AwaitWake(ours);
  Message message;
  Check(Value(ours.Take(&message)), "taken");
  const Capabilities can = ours.capabilities();
  Check(can.stream && !can.get && !can.put && !can.map, "a stream and nothing else");
  const auto segment = Value(memory::Segment::Create(4096));
  const auto registration = Value(shm::Get().Register(segment, 0, 4096, Access::kRead));
  uint8_t byte = 0;
  for (const Status& status : {ours.Export(registration).status(), GetNow(ours, "", 0, &byte, 1),
                               PutNow(ours, "", 0, &byte, 1), ours.Map("", 0, 1).status()}) {
    CheckCode(status, StatusCode::kUnimplemented);
  }
  theirs.Close(nullptr);
  AwaitWake(ours);
  CheckCode(ReadText(ours, 1).status(), StatusCode::kUnavailable, "peer");
}

void AnOldConnectorAttaches() {
  const size_t before = OpenFdsAtRest();
  const memory::SharedMemory region = Value(memory::CreateShared(kSegmentSize));
  for (const bool offers : {false, true}) {
    Forger forger(shm::kOldVersion);
    shm::AttachRequest request = forger.request();
    std::vector<int> fds = forger.fds();
    if (offers) {
      request.region_bytes = kSegmentSize;
      fds.push_back(region.fd.get());
    }
    // As the release before said it: nothing but these bytes.
    const std::string bytes = Encode(request);
    Check(bytes.size() == 4 + 2 + 16 + 8 + 8 && bytes[4] == 1, "version 1");
    Outcome outcome = Forge(forger, request, fds);
    CheckOk(outcome.answer.status());
    CheckOk(outcome.answer->status);
    Check(outcome.answer->version == 1 && outcome.answer->region_bytes == 0 && outcome.fds.empty(),
          "an answer in version 1, without a region");
    const auto ours = Value(std::move(outcome.accepted));
    const auto theirs = forger.End();
    CheckStreamOnly(*ours, *theirs);
  }
  CheckNoFdLeaks(before + 1);  // `region`
}

// What it says of a region is not used, but must be consistent.
void AnOldConnectorsRegionIsNotLookedAt() {
  const memory::SharedMemory region = Value(memory::CreateShared(kSegmentSize));
  const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  const auto forge = [](uint64_t stated, const std::vector<int>& more) {
    Forger forger(shm::kOldVersion);
    shm::AttachRequest request = forger.request();
    request.region_bytes = stated;
    std::vector<int> fds = forger.fds();
    fds.insert(fds.end(), more.begin(), more.end());
    return Forge(forger, request, fds);
  };
  CheckOk(forge(UINT64_MAX, {null.get()}).accepted.status());
  CheckRefused(forge(0, {region.fd.get()}), StatusCode::kInvalidArgument, "4 descriptors");
  CheckRefused(forge(kSegmentSize, {}), StatusCode::kInvalidArgument, "3 descriptors");
}

// Its eventfds are open files of both ends: it may make them block, fill them and empty them.
// `wakes_peer` and `wakes_ours` are the peer's descriptors of them.
void CheckNeverBlocks(Connection& ours, ConnectionHeader& header, int direction, int wakes_peer,
                      int wakes_ours) {
  for (const int fd : {wakes_peer, wakes_ours}) Check(fcntl(fd, F_SETFL, 0) == 0, "fcntl");
  const uint64_t most = UINT64_MAX - 1;
  Check(write(wakes_peer, &most, sizeof(most)) == sizeof(most), "full");
  Ended ended;
  std::thread([&ours, &header, direction, wakes_ours, done = ended.done()] {
    for (int i = 0; i < 100; ++i) {
      header.bytes[direction].reader_armed = 1;
      Check(Value(WriteText(ours, "x")) == 1, "written to a full one");
      header.bytes[direction].reader_armed = 1;
      Check(Value(ours.Post(Message())), "posted");
    }
    const uint64_t one = 1;
    for (int i = 0; i < 3; ++i) {
      Check(write(wakes_ours, &one, sizeof(one)) == sizeof(one), "rung");
      Check(Readable(ours.wake_fd(), kTimeoutMs), "woken");
      // Emptied between the wake-up and its end.
      uint64_t taken = 0;
      Check(i > 0 || read(wakes_ours, &taken, sizeof(taken)) == sizeof(taken), "emptied");
      ours.ClearWake();
      Check(!Readable(ours.wake_fd(), 0), "cleared");
      ours.ClearWake();
    }
    ours.Close(nullptr);
    Check(Readable(ours.wake_fd(), kTimeoutMs), "its own waiter hears of the end");
    done(Status());
  }).detach();
  Check(ended.Ready(kTimeoutMs), "a peer made this end block");
  Check(Readable(wakes_peer, 0), "the peer is awake");
}

void AnOldPeerCannotBlockAWakeUp() {
  {
    Forger forger(shm::kOldVersion);
    const Outcome outcome = Forge(forger);
    CheckOk(outcome.accepted.status());
    CheckNeverBlocks(**outcome.accepted, forger.header(), 1, forger.wake.get(),
                     forger.peer_wake.get());
  }
  shm::AttachAnswer answer;
  answer.version = shm::kOldVersion;
  std::vector<UniqueFd> passed;
  const auto connection = Value(ConnectToForged({{Encode(answer), {}}}, shm::kOldVersion, &passed));
  const auto memory =
      Value(Map(passed[0].get(), ConnectionBytes(kRingBytes), PROT_READ | PROT_WRITE, MAP_SHARED));
  CheckNeverBlocks(*connection, *reinterpret_cast<ConnectionHeader*>(memory.get()), 0,
                   passed[2].get(), passed[1].get());
}

void AnOldAcceptorIsAttachedTo() {
  const size_t before = OpenFdsAtRest();
  const memory::SharedMemory region = Value(memory::CreateShared(kSegmentSize));
  shm::AttachAnswer answer;
  answer.version = shm::kOldVersion;
  const auto connect = [&answer](const std::vector<int>& fds) {
    return ConnectToForged({{Encode(answer), fds}}, shm::kOldVersion);
  };
  {
    const auto connection = Value(connect({}));
    Check(!connection->capabilities().get, "a stream and nothing else");
    Check(Value(WriteText(*connection, "x")) == 1, "written");
    uint8_t byte;
    CheckCode(GetNow(*connection, "", 0, &byte, 1), StatusCode::kUnimplemented);
  }
  CheckCode(connect({region.fd.get()}).status(), StatusCode::kInvalidArgument);
  answer.region_bytes = kSegmentSize;
  CheckOk(connect({region.fd.get()}).status());
  CheckCode(connect({}).status(), StatusCode::kInvalidArgument);
  answer.status = Status(StatusCode::kPermissionDenied, "unknown token");
  CheckCode(connect({}).status(), StatusCode::kPermissionDenied, "unknown token");
  CheckNoFdLeaks(before + 1);  // `region`
}

// Both ends of today, the connector told to speak as before: what a client meets whose server is
// found by an answer of version 1.
void TodaysEndsSpeakTheOldVersion() {
  const auto listener = ListenHere();
  TokenFrame frame = FrameFor(listener->address(), NewToken());
  frame.version = shm::kOldVersion;
  Awaited accepted;
  listener->Expect(frame.token, accepted.done());
  const auto connector = Value(ConnectNow(frame));
  const auto acceptor = Value(accepted.Get());
  CheckStreamOnly(*acceptor, *connector);
}

}  // namespace

std::vector<Case> ShmOldPeerCases() {
  return {
      {"an old connector attaches", AnOldConnectorAttaches},
      {"an old connector's region is not looked at", AnOldConnectorsRegionIsNotLookedAt},
      {"an old peer cannot block a wake-up", AnOldPeerCannotBlockAWakeUp},
      {"an old acceptor is attached to", AnOldAcceptorIsAttachedTo},
      {"today's ends speak the old version", TodaysEndsSpeakTheOldVersion},
  };
}

}  // namespace ar_grpc::fabric::testing
