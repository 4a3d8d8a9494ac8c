// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What holds over iWARP alone, in one process with a device of it: who is let in, and what a peer
// may write.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "tests/verbs/library_to_wrap.h"
#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/verbs/abi.h"
#include "third_party/ar_grpc/fabric/verbs/iwarp_frame.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"
#include "third_party/ar_grpc/memory/segment.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

// Memory that is registered for a peer's writing.
struct Writable {
  uint64_t start;
  uint64_t size;
};
std::mutex writable_mu;
// Never destroyed: regions end on the reactor while the program does.
auto& writable = *new std::map<abi::MemoryRegion*, Writable>;  // now
auto& was_writable = *new std::vector<Writable>;               // ever

decltype(Library::reg_mr) real_reg_mr;
decltype(Library::dereg_mr) real_dereg_mr;

abi::MemoryRegion* RegisterMemory(abi::ProtectionDomain* domain, void* address, size_t length,
                                  int access) {
  abi::MemoryRegion* const region = real_reg_mr(domain, address, length, access);
  if (region != nullptr && (access & abi::kAccessRemoteWrite) != 0) {
    std::lock_guard<std::mutex> lock(writable_mu);
    writable[region] = {reinterpret_cast<uintptr_t>(address), length};
    was_writable.push_back(writable[region]);
  }
  return region;
}

int DeregisterMemory(abi::MemoryRegion* region) {
  {
    std::lock_guard<std::mutex> lock(writable_mu);
    writable.erase(region);
  }
  return real_dereg_mr(region);
}

size_t WritableNow() {
  std::lock_guard<std::mutex> lock(writable_mu);
  return writable.size();
}

void WatchRegistrations() {
  Library* const library = LibraryToWrap();
  real_reg_mr = std::exchange(library->reg_mr, RegisterMemory);
  real_dereg_mr = std::exchange(library->dereg_mr, DeregisterMemory);
}

// A server's end that has said where it listens.
struct Listening {
  Listening() : attachment(Value(Get().Accept(end.events()))), frame(*end.NextFrame()) {}
  End end;
  std::unique_ptr<Attachment> attachment;
  std::string frame;
};

struct Pair {
  std::unique_ptr<Connection> client;
  std::unique_ptr<Connection> server;
};

Pair Join(Listening* server) {
  End client;
  const auto connect = Value(Get().Connect(client.events()));
  connect->TakeFrame(server->frame);
  const auto answer = client.NextFrame();
  if (!answer.has_value()) {
    if (server->end.made()) CheckCode(server->end.Take().status(), StatusCode::kOk);
    CheckCode(client.Take().status(), StatusCode::kOk);
  }
  server->attachment->TakeFrame(*answer);
  connect->TakeFrame(*server->end.NextFrame());
  return {Value(client.Take()), Value(server->end.Take())};
}

Status Try(const std::string& frame) {
  End client;
  const auto connect = Value(Get().Connect(client.events()));
  connect->TakeFrame(frame);
  return client.Take().status();
}

// Speaks no iWARP, and stays until it is refused. Hanging up at once could close the listener:
// Linux 6.1's soft-iWARP takes the end of a connection that it has not accepted yet for the
// listener's own (siw_cm_llp_state_change runs with the listener's data), whoever listens.
void SayNonsense(const IwarpInvitation& invitation) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(invitation.ports[0]);
  std::memcpy(&address.sin_addr, invitation.address.names[0].gid.data() + 12, 4);
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM, 0));
  const auto* const plain = reinterpret_cast<const sockaddr*>(&address);
  Check(connect(fd.get(), plain, sizeof(address)) == 0, "nobody listens there");
  const std::string nonsense(100, 'x');
  Check(send(fd.get(), nonsense.data(), nonsense.size(), MSG_NOSIGNAL) == 100, "send");
  char byte = 0;
  Check(recv(fd.get(), &byte, 1, 0) <= 0, "nonsense was answered");
}

// They neither get in nor keep the peer out.
void StrangersAreRefused() {
  Listening server;
  const IwarpInvitation invitation = Value(DecodeInvitation(server.frame));
  IwarpInvitation forged = invitation;
  forged.token[15] ^= 1;
  for (int i = 0; i < 20; ++i) {
    CheckCode(Try(Encode(forged)), StatusCode::kUnavailable, "siw0/1: connecting over iWARP");
  }
  SayNonsense(invitation);
  Check(!server.end.made(), "an end was made for a stranger");
  const Pair pair = Join(&server);
  // A token counts once, and nobody listens any more.
  CheckCode(Try(server.frame), StatusCode::kUnavailable,
            "a queue pair of siw0: Connection refused");
}

void NobodyListensAfterGivingUp() {
  Listening server;
  server.attachment.reset();
  // The reactor ends the listener.
  const auto begin = std::chrono::steady_clock::now();
  while (Try(server.frame).message().find("Connection refused") == std::string::npos) {
    Check(std::chrono::steady_clock::now() - begin < kPatience, "somebody listens still");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// A client that has not heard the last word yet gets a connection all the same, which is closed.
void AServerMayCloseAtOnce() {
  Listening server;
  End client;
  const auto connect = Value(Get().Connect(client.events()));
  connect->TakeFrame(server.frame);
  server.attachment->TakeFrame(*client.NextFrame());
  const std::string last_word = *server.end.NextFrame();
  CloseNow(*Value(server.end.Take()));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  Check(!client.made(), "an end without the last word");
  connect->TakeFrame(last_word);
  const auto connection = Value(client.Take());
  Check(connection->closed(), "not closed");
  uint8_t byte = 0;
  CheckCode(connection->Read(&byte, 1).status(), StatusCode::kUnavailable, "closed by the peer");
}

// Where a READ lands a peer may write, while it lasts; and nowhere else, also where all around is
// registered for reading.
void ReadsLandAlone() {
  constexpr size_t kBytes = 1 << 20;
  constexpr size_t kOffset = 12345;
  constexpr size_t kSize = 100001;
  const auto source = Value(memory::Segment::Create(kBytes));
  const auto target = Value(memory::Segment::Create(kBytes));
  const auto of_source = Value(Get().Register(source, 0, kBytes, Access::kRead));
  const auto of_target = Value(Get().Register(target, 0, kBytes, Access::kRead));
  std::memset(source->data(), 7, kBytes);
  Listening server;
  const Pair pair = Join(&server);
  const Key key = Value(pair.server->Export(of_source));
  Check(was_writable.empty(), "memory that is registered for reading, or for frames, is writable");
  std::vector<uint8_t> heap(kBytes);
  for (uint8_t* const into : {target->data(), heap.data()}) {
    Awaited<size_t> left;
    pair.client->Get(key, 0, into + kOffset, kSize, nullptr, [&left](Status status) {
      CheckCode(status, StatusCode::kOk);
      left.Set(WritableNow());
    });
    Check(left.Get() == 0, "a peer may write when the READ has ended");
    Check(into[kOffset - 1] == 0 && into[kOffset] == 7 && into[kOffset + kSize] == 0, "the bytes");
    std::lock_guard<std::mutex> lock(writable_mu);
    Check(was_writable.size() == 1, "not one registration of a READ");
    Check(was_writable[0].start == reinterpret_cast<uintptr_t>(into + kOffset) &&
              was_writable[0].size == kSize,
          "another range than the READ's");
    was_writable.clear();
  }
}

void Run(const char* name, void (*one)()) {
  one();
  std::printf("ok iwarp: %s\n", name);
  std::fflush(stdout);
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main() {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  WatchRegistrations();
  Run("READs land alone", ReadsLandAlone);
  Run("strangers are refused", StrangersAreRefused);
  Run("nobody listens after giving up", NobodyListensAfterGivingUp);
  Run("a server may close at once", AServerMayCloseAtOnce);
}
