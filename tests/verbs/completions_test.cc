// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What a device may answer and Soft-RoCE does not: each error of a completion, for each kind of
// request, and queues that misbehave as they did in the field. Its functions are wrapped where this
// process keeps them. Both ends are in this process.

#include <poll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>
#include <thread>
#include <vector>

#include "tests/verbs/library_to_wrap.h"
#include "tests/verbs/two_hosts.h"
#include "third_party/ar_grpc/fabric/verbs/flow_control.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr size_t kBytes = size_t{1} << 20;
// Of a completion, as the interface numbers them.
constexpr int kSent = 0;
constexpr int kWritten = 1;
constexpr int kHasRead = 2;
constexpr int kReceived = 128;
// The last one that a reliable connection knows, and one that none does.
constexpr int kLastStatus = 21;
constexpr int kNoStatus = 77;

// As they are in the library.
Library real;
abi::ContextOperations real_operations;

// The next completion of this opcode has this status; -1: none has.
std::atomic<int> wanted_opcode{-1};
std::atomic<int> given_status{0};

int Poll(abi::CompletionQueue* queue, int count, abi::WorkCompletion* completions) {
  const int got = real_operations.poll_cq(queue, count, completions);
  for (int i = 0; i < got; ++i) {
    int opcode = completions[i].opcode;
    if (completions[i].status != abi::kCompleted || opcode != wanted_opcode) continue;
    if (wanted_opcode.compare_exchange_strong(opcode, -1)) completions[i].status = given_status;
  }
  return got;
}

// How long a queue is not armed yet after it was asked for its events: what completes meanwhile
// gives none.
std::atomic<int> arm_delay_ms{0};
int Notify(abi::CompletionQueue* queue, int solicited_only) {
  std::this_thread::sleep_for(std::chrono::milliseconds(arm_delay_ms));
  return real_operations.req_notify_cq(queue, solicited_only);
}

// Before so many requests of any pair this one is forced to error, from outside.
std::atomic<int> posts_before_error{0};
std::atomic<abi::QueuePair*> forced_pair{nullptr};
void ForceToError() {
  abi::QueuePairAttributes attributes = {};
  attributes.state = abi::kStateError;
  Check(real.modify_qp(forced_pair, &attributes, abi::kSetState) == 0, "modify_qp");
}

// After so many requests the queue is full; 0: never.
std::atomic<int> posts_left{0};
int PostSend(abi::QueuePair* pair, abi::SendRequest* request, abi::SendRequest** refused) {
  if (posts_before_error > 0 && --posts_before_error == 0) ForceToError();
  if (posts_left > 0 && --posts_left == 0) {
    *refused = request;
    return ENOMEM;
  }
  return real_operations.post_send(pair, request, refused);
}

abi::Context* OpenDevice(abi::Device* device) {
  abi::Context* const context = real.open_device(device);
  real_operations = context->operations;
  context->operations.poll_cq = Poll;
  context->operations.req_notify_cq = Notify;
  context->operations.post_send = PostSend;
  return context;
}

std::mutex pairs_mu;
std::vector<abi::QueuePair*> pairs;  // in the order in which they were made
abi::QueuePair* CreatePair(abi::ProtectionDomain* domain, abi::QueuePairInit* init) {
  abi::QueuePair* const pair = real.create_qp(domain, init);
  std::lock_guard<std::mutex> lock(pairs_mu);
  pairs.push_back(pair);
  return pair;
}

void Wrap() {
  Library* const library = LibraryToWrap();
  real = *library;
  library->open_device = OpenDevice;
  library->create_qp = CreatePair;
}

// The server's queue pair is made first.
struct Pair {
  abi::QueuePair* server_pair;
  std::unique_ptr<Connection> server;
  std::unique_ptr<Connection> client;
};

Pair Connected() {
  End server;
  End client;
  size_t made = 0;
  {
    std::lock_guard<std::mutex> lock(pairs_mu);
    made = pairs.size();
  }
  const auto accept = Value(Get().Accept(server.events()));
  const auto connect = Value(Get().Connect(client.events()));
  connect->TakeFrame(*server.NextFrame());
  accept->TakeFrame(*client.NextFrame());
  connect->TakeFrame(*server.NextFrame());
  std::lock_guard<std::mutex> lock(pairs_mu);
  return {pairs[made], Value(server.Take()), Value(client.Take())};
}

struct Memory {
  std::shared_ptr<memory::Segment> segment = Value(memory::Segment::Create(kBytes));
  std::shared_ptr<Registration> registration =
      Value(Get().Register(segment, 0, kBytes, Access::kWrite));
};

void Soon(const std::function<bool()>& holds, const char* what) {
  const auto begin = std::chrono::steady_clock::now();
  while (!holds()) {
    Check(std::chrono::steady_clock::now() - begin < kPatience, what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Frames of the stream, of which the device answers one at least.
void WriteFrames(Connection* connection) {
  const std::vector<uint8_t> bytes(kSignalEvery * kFrameBytes);
  const iovec part = {const_cast<uint8_t*>(bytes.data()), bytes.size()};
  static_cast<void>(connection->Write(&part, 1).ok());
}

std::string TextOf(int status) {
  const char* const text = real.wc_status_str(status);
  return text == nullptr ? "unknown error" : text;
}

void IsOver(Connection* end, const std::string& text) {
  Soon([&] { return end->closed(); }, "an end whose completion failed is not closed");
  pollfd polled = {end->wake_fd(), POLLIN, 0};
  Check(poll(&polled, 1, 5000) == 1, "who waits for the stream is not woken");
  uint8_t byte = 0;
  // What had come can be read.
  StatusOr<size_t> got = end->Read(&byte, 1);
  while (got.ok() && *got > 0) got = end->Read(&byte, 1);
  CheckCode(got.status(), StatusCode::kUnavailable, text);
  const iovec part = {&byte, 1};
  CheckCode(end->Write(&part, 1).status(), StatusCode::kUnavailable, text);
  CheckCode(end->Post(Message()).status(), StatusCode::kUnavailable, text);
  CheckCode(end->ArmRead().status(), StatusCode::kUnavailable, text);
}

void CompletionFails(int opcode, int status, const Memory& memory) {
  Pair pair = Connected();
  const Key key = Value(pair.client->Export(memory.registration));
  // One that waits behind the failed one, and must end, too.
  static std::vector<uint8_t> into(kBytes);
  Awaited<Status> first;
  Awaited<Status> second;
  const auto get = [&](Awaited<Status>* ended) {
    pair.server->Get(key, 0, into.data(), kBytes, nullptr, [ended](Status s) { ended->Set(s); });
  };
  given_status = status;
  wanted_opcode = opcode;
  switch (opcode) {
    case kSent:
      WriteFrames(pair.server.get());
      get(&first);
      break;
    case kReceived:
      WriteFrames(pair.client.get());
      get(&first);
      break;
    case kWritten:
      pair.server->Put(key, 0, into.data(), kBytes, nullptr, [&first](Status s) { first.Set(s); });
      break;
    default:
      get(&first);
      break;
  }
  get(&second);
  const std::string text = TextOf(status);
  const Status ended = first.Get();
  if (opcode == kWritten || opcode == kHasRead) {
    const bool refused = status == abi::kRemoteAccessError || status == abi::kRemoteInvalidRequest;
    CheckCode(ended, refused ? StatusCode::kInvalidArgument : StatusCode::kUnavailable, text);
  } else if (!ended.ok()) {
    CheckCode(ended, StatusCode::kUnavailable);
  }
  // It may have been over before; else it fails with the connection.
  if (const Status other = second.Get(); !other.ok()) CheckCode(other, StatusCode::kUnavailable);
  IsOver(pair.server.get(), text);
  Check(wanted_opcode == -1, "no such completion came");
}

void EachCompletionFails(int opcode) {
  const Holdings before = AtRest();
  {
    const Memory memory;
    for (int status = 1; status <= kLastStatus; ++status) CompletionFails(opcode, status, memory);
    CompletionFails(opcode, kNoStatus, memory);
  }
  UntilNothingIsLeftBut(before);
}

// What completes between a look and the arming gives no event: so it is armed first, and looked at
// then. Only the reactor looks here.
void CompletionsBeforeArming() {
  const Pair pair = Connected();
  const Memory memory;
  const Key key = Value(pair.client->Export(memory.registration));
  std::vector<uint8_t> into(kBytes);
  arm_delay_ms = 20;
  // One that was missed would never be found.
  for (int i = 0; i < 30; ++i) {
    CheckCode(GetNow(*pair.server, key, 0, into.data(), kBytes), StatusCode::kOk);
  }
  arm_delay_ms = 0;
}

// How many have failed, once all have ended; those have by the connection's end.
template <size_t kCount>
int Failed(std::array<Awaited<Status>, kCount>* ended) {
  int failed = 0;
  for (Awaited<Status>& one : *ended) {
    const Status status = one.Get();
    if (status.ok()) continue;
    ++failed;
    CheckCode(status, StatusCode::kUnavailable);
  }
  return failed;
}

// A device whose queue is full in spite of all counting.
void QueueOverruns(int after) {
  const Pair pair = Connected();
  const Memory memory;
  const Key key = Value(pair.client->Export(memory.registration));
  std::vector<uint8_t> into(kBytes);
  constexpr int kReads = 8;
  std::array<Awaited<Status>, kReads> ended;
  posts_left = after;
  for (Awaited<Status>& one : ended) {
    pair.server->Get(key, 0, into.data(), kBytes, nullptr, [&one](Status s) { one.Set(s); });
    WriteFrames(pair.server.get());
  }
  Check(posts_left == 0, "the queue was not full");
  const int failed = Failed(&ended);
  Check(failed > 0, "all reads went through a full queue");
  IsOver(pair.server.get(), "posting to rxe0/1: Cannot allocate memory");
}

// In the middle of reads and frames. (Soft-RoCE reads from its own device while it is posted to, so
// this happens between two requests.)
void PairIsForcedToError(bool reader) {
  Pair pair = Connected();
  const Memory memory;
  const Memory into;
  Connection* const end = reader ? pair.server.get() : pair.client.get();
  Connection* const owner = reader ? pair.client.get() : pair.server.get();
  const Key key = Value(owner->Export(memory.registration));
  constexpr int kReads = 32;
  std::array<Awaited<Status>, kReads> ended;
  forced_pair = pair.server_pair;
  posts_before_error = kReads;
  for (Awaited<Status>& one : ended) {
    end->Get(key, 0, into.segment->data(), kBytes, nullptr, [&one](Status s) { one.Set(s); });
    WriteFrames(end);
  }
  const auto begin = std::chrono::steady_clock::now();
  // The end whose pair it is gets its buffers back at once.
  IsOver(pair.server.get(), "Work Request Flushed Error");
  std::printf("this end over within %.2f s, ", Seconds(begin));
  const int failed = Failed(&ended);
  Check(posts_before_error == 0 && failed > 0, "all reads went through a pair in error");
  std::printf("%d of %d reads failed, ", failed, kReads);
  // The other one learns of it from the device when it sends.
  if (reader) WriteFrames(owner);
  IsOver(pair.client.get(), "transport retry counter exceeded");
  std::printf("the other within %.2f s\n", Seconds(begin));
}

// Nothing is left after it.
void Run(const char* name, const std::function<void()>& one) {
  const auto begin = std::chrono::steady_clock::now();
  const Holdings before = AtRest();
  one();
  UntilNothingIsLeftBut(before);
  std::printf("ok completions: %s (%.2f s)\n", name, Seconds(begin));
  std::fflush(stdout);
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  Wrap();
  {
    const Pair once = Connected();  // what a process makes once
    CloseNow(*once.client);
    CloseNow(*once.server);
  }
  Run("each error of a SEND", [] { EachCompletionFails(kSent); });
  Run("each error of a receive buffer", [] { EachCompletionFails(kReceived); });
  Run("each error of a READ", [] { EachCompletionFails(kHasRead); });
  Run("each error of a WRITE", [] { EachCompletionFails(kWritten); });
  Run("completions before arming", CompletionsBeforeArming);
  Run("a full queue at once", [] { QueueOverruns(1); });
  Run("a full queue later", [] { QueueOverruns(8); });
  Run("a reader's pair in error", [] { PairIsForcedToError(true); });
  Run("an owner's pair in error", [] { PairIsForcedToError(false); });
}
