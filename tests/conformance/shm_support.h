// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_CONFORMANCE_SHM_SUPPORT_H_
#define TESTS_CONFORMANCE_SHM_SUPPORT_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/ring_connection.h"
#include "third_party/ar_grpc/fabric/shm/attach.h"
#include "third_party/ar_grpc/fabric/token_attachment.h"
#include "third_party/ar_grpc/memory/shared_memory.h"

// What the tests of shm share.
namespace ar_grpc::fabric::testing {

// The groups of shm_test.
std::vector<Case> ShmUnthreadedCases();  // to be run before this program has any thread
std::vector<Case> ShmForgedCases();
std::vector<Case> ShmStallCases();
std::vector<Case> ShmWakeCases();
std::vector<Case> ShmAnnouncedCases();
std::vector<Case> ShmOldPeerCases();
std::vector<Case> ShmKernelCases();
std::vector<Case> ShmForkCases();
std::vector<Case> ShmProcessCases();
std::vector<Case> ShmLimitCases();

// This program with a role: what a child does before it waits to be killed.
int RunRole(const std::string& role, const std::string& argument);

void RunBefore58(bool with_aio);

size_t OpenFds();
// What a case begins with: peers of the cases before it may still be on their way out.
size_t OpenFdsAtRest();
// A peer's descriptors go when the reactor hears that it has gone.
void CheckNoFdLeaks(size_t before, int line = __builtin_LINE());
// The status of a child that has ended.
int WaitFor(pid_t child);

// A ConnectDone whose result can be waited for.
class Awaited {
 public:
  ConnectDone done() {
    return [promise = promise_](MaybeConnection result) { promise->set_value(std::move(result)); };
  }
  bool Ready(int timeout_ms) {
    return future_.wait_for(std::chrono::milliseconds(timeout_ms)) == std::future_status::ready;
  }
  MaybeConnection Get(int line = __builtin_LINE(), const char* file = __builtin_FILE()) {
    Check(Ready(kTimeoutMs), "no connection and no error in time", line, file);
    return future_.get();
  }

 private:
  std::shared_ptr<std::promise<MaybeConnection>> promise_ =
      std::make_shared<std::promise<MaybeConnection>>();
  std::future<MaybeConnection> future_ = promise_->get_future();
};

std::shared_ptr<TokenListener> ListenHere(const std::string& directory = "");
TokenFrame FrameFor(const std::string& address, const Token& token);
MaybeConnection ConnectNow(const TokenFrame& frame);
// Both ends over a listener of their own.
Pair AttachTo(TokenListener& listener);
UniqueFd ConnectTo(const std::string& address);

shm::Packet AwaitPacket(int socket);
bool HungUp(int socket, int timeout_ms);
// A memfd that its owner could shrink.
UniqueFd Unsealed(size_t size);

// The doorbell of who holds both, over the same eventfds.
std::unique_ptr<Doorbell> BellOf(uint16_t version, const UniqueFd& own, const UniqueFd& peers);

// A connector made by hand, to say what no honest one would.
struct Forger {
  explicit Forger(uint16_t version = shm::kVersion);

  uint16_t version;
  Token token = NewToken();
  size_t ring_bytes = kRingBytes;
  memory::SharedMemory memory = Value(memory::CreateShared(ConnectionBytes(kRingBytes)));
  UniqueFd wake;
  UniqueFd peer_wake;
  // Of the connector's end, over the same eventfds.
  std::unique_ptr<Doorbell> bell;

  ConnectionHeader& header() { return *reinterpret_cast<ConnectionHeader*>(memory.data.get()); }
  shm::AttachRequest request() const;
  std::vector<int> fds() const;
  // An end of the connection that it has asked for. `bell` is used up by that.
  std::unique_ptr<Connection> End();
};

struct Outcome {
  MaybeConnection accepted;
  StatusOr<shm::AttachAnswer> answer;
  std::vector<UniqueFd> fds;
  UniqueFd socket;
};

// What an acceptor makes of such a request.
Outcome Forge(const Token& token, const std::string& bytes, const std::vector<int>& fds);
Outcome Forge(Forger& forger, const shm::AttachRequest& request, const std::vector<int>& fds);
Outcome Forge(Forger& forger);
void CheckRefused(const Outcome& outcome, StatusCode code, const std::string& text,
                  int line = __builtin_LINE());

// A listener made by hand, whose answers are `packets`, and what a connector makes of them.
struct Said {
  std::string bytes;
  std::vector<int> fds;
};
// `passed` gets the descriptors of the connector's request.
MaybeConnection ConnectToForged(const std::vector<Said>& packets, uint16_t version = shm::kVersion,
                                std::vector<UniqueFd>* passed = nullptr);

}  // namespace ar_grpc::fabric::testing

#endif  // TESTS_CONFORMANCE_SHM_SUPPORT_H_
