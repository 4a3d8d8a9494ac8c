// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/contract.h"

#include <grpc/slice_buffer.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "src/core/lib/event_engine/channel_args_endpoint_config.h"
#include "src/core/lib/gprpp/status_helper.h"
#include "src/core/lib/gprpp/time.h"
#include "src/core/lib/iomgr/closure.h"
#include "src/core/lib/iomgr/error.h"
#include "src/core/lib/iomgr/ev_posix.h"
#include "src/core/lib/iomgr/exec_ctx.h"
#include "src/core/lib/iomgr/socket_utils_posix.h"
#include "src/core/lib/iomgr/tcp_posix.h"
#include "tests/grpc_suites/ends.h"
#include "third_party/ar_grpc/base/keep_alive.h"
#include "third_party/ar_grpc/grpc/poller.h"
#include "third_party/ar_grpc/protocol/release_batch.h"

namespace ar_grpc::testing {
namespace {

using fabric::testing::Check;

// More than any ring holds.
constexpr size_t kMuch = size_t{4} << 20;

// One poll of whoever waits here; others may poll at the same time.
void Poll(grpc_core::Duration most) {
  gpr_mu_lock(Pollset::mu());
  grpc_pollset_worker* worker = nullptr;
  const grpc_error_handle error =
      grpc_pollset_work(Pollset::get(), &worker, grpc_core::Timestamp::Now() + most);
  gpr_mu_unlock(Pollset::mu());
  Check(error.ok(), grpc_core::StatusToString(error));
  grpc_core::ExecCtx::Get()->Flush();
  grpc_core::ExecCtx::Get()->InvalidateNow();
}

// A buffer and the closure of the read or write that uses it.
class Operation {
 public:
  Operation() {
    grpc_slice_buffer_init(&buffer_);
    GRPC_CLOSURE_INIT(
        &closure_,
        [](void* arg, grpc_error_handle error) {
          auto* const self = static_cast<Operation*>(arg);
          self->error_ = error;
          self->done_.store(true);
          gpr_mu_lock(Pollset::mu());
          Check(grpc_pollset_kick(Pollset::get(), nullptr).ok(), "a kick");
          gpr_mu_unlock(Pollset::mu());
        },
        this, nullptr);
  }
  ~Operation() { grpc_slice_buffer_destroy(&buffer_); }

  void Read(grpc_endpoint* end) {
    done_ = false;
    grpc_endpoint_read(end, &buffer_, &closure_, /*urgent=*/false, /*min_progress_size=*/1);
    grpc_core::ExecCtx::Get()->Flush();
  }
  void Write(grpc_endpoint* end) {
    done_ = false;
    grpc_endpoint_write(end, &buffer_, &closure_, nullptr, /*max_frame_size=*/INT_MAX);
    grpc_core::ExecCtx::Get()->Flush();
  }
  bool done() const { return done_; }
  // OK, or the error; waits for it.
  absl::Status Wait(int line = __builtin_LINE()) {
    const auto deadline = grpc_core::Timestamp::Now() + grpc_core::Duration::Seconds(10);
    while (!done_) {
      Check(grpc_core::Timestamp::Now() < deadline, "it ends in time", line);
      Poll(grpc_core::Duration::Milliseconds(100));
    }
    return error_;
  }

  void Add(const std::string& text) {
    grpc_slice_buffer_add_indexed(&buffer_,
                                  grpc_slice_from_copied_buffer(text.data(), text.size()));
  }
  std::string Take() {
    std::string text;
    for (size_t i = 0; i < buffer_.count; ++i) {
      text.append(reinterpret_cast<const char*>(GRPC_SLICE_START_PTR(buffer_.slices[i])),
                  GRPC_SLICE_LENGTH(buffer_.slices[i]));
    }
    grpc_slice_buffer_reset_and_unref(&buffer_);
    return text;
  }

 private:
  grpc_slice_buffer buffer_;
  grpc_closure closure_;
  std::atomic<bool> done_{false};
  absl::Status error_;
};

void CheckOk(const absl::Status& status, int line = __builtin_LINE()) {
  Check(status.ok(), grpc_core::StatusToString(status), line);
}

// Only such an error lets a caller try again.
void CheckUnavailable(const absl::Status& status, const std::string& text,
                      int line = __builtin_LINE()) {
  const std::string said = grpc_core::StatusToString(status);
  intptr_t code = GRPC_STATUS_OK;
  grpc_error_get_int(status, grpc_core::StatusIntProperty::kRpcStatus, &code);
  Check(code == GRPC_STATUS_UNAVAILABLE, "unavailable: " + said, line);
  Check(said.find(text) != std::string::npos, "'" + text + "' in: " + said, line);
}

void Destroy(const Ends& ends) {
  grpc_endpoint_destroy(ends.client);
  grpc_endpoint_destroy(ends.server);
}

void Send(grpc_endpoint* from, const std::string& text) {
  Operation write;
  write.Add(text);
  write.Write(from);
  CheckOk(write.Wait());
}

// Reads until there are `size` bytes.
std::string Receive(grpc_endpoint* end, size_t size) {
  std::string text;
  Operation read;
  while (text.size() < size) {
    read.Read(end);
    CheckOk(read.Wait());
    text += read.Take();
  }
  return text;
}

std::string Random(size_t size, int seed) {
  std::mt19937 random(seed);
  std::string text(size, '\0');
  for (char& byte : text) byte = static_cast<char>(random());
  return text;
}

void ReadsAndWritesFailAfterShutdown(const std::string& fabric) {
  const Ends ends = NewEnds(fabric);
  Send(ends.server, "unread");
  grpc_endpoint_shutdown(ends.client, GRPC_ERROR_CREATE("by the test"));
  Operation read;
  read.Read(ends.client);
  Check(read.done() && !read.Wait().ok(), "a read fails at once, though bytes lie there");
  Check(read.Take().empty(), "and gives none of them");
  Operation write;
  write.Add("unsent");
  write.Write(ends.client);
  Check(write.done() && !write.Wait().ok(), "a write fails at once");
  Destroy(ends);
}

void DestructionEndsWhatIsUnderWay(const std::string& fabric) {
  const Ends ends = NewEnds(fabric);
  Operation read;
  Operation write;
  read.Read(ends.client);
  write.Add(Random(kMuch, 1));
  write.Write(ends.client);
  Check(!read.done() && !write.done(), "neither can end");
  grpc_endpoint_destroy(ends.client);
  Check(!read.Wait().ok() && !write.Wait().ok(), "both fail");
  grpc_endpoint_destroy(ends.server);
}

void AnySlicesArriveInOrder(const std::string& fabric) {
  const Ends ends = NewEnds(fabric);
  std::mt19937 random(2);
  // More slices than go into one call, empty ones between, at both ends and many in a row.
  for (const int slices : {0, 1, 64, 65, 1000}) {
    Operation write;
    std::string sent;
    for (int i = 0; i < slices; ++i) {
      const std::string text = Random(random() % 3 == 0 ? random() % 5000 : random() % 2, i);
      write.Add(text);
      sent += text;
    }
    for (int i = 0; i < 100; ++i) write.Add("");
    write.Write(ends.client);
    Check(Receive(ends.server, sent.size()) == sent, "what was sent");
    CheckOk(write.Wait());
  }
  Destroy(ends);
}

void WhatWasWrittenBeforeTheEndIsRead(const std::string& fabric) {
  const Ends ends = NewEnds(fabric);
  const std::string text = Random(3000, 3);
  Send(ends.server, text);
  grpc_endpoint_destroy(ends.server);
  // Both ways by which the end is heard of have been looked at before the first read.
  for (int i = 0; i < 10; ++i) Poll(grpc_core::Duration::Milliseconds(10));
  Check(Receive(ends.client, text.size()) == text, "all of it");
  Operation read;
  read.Read(ends.client);
  CheckUnavailable(read.Wait(), "closed");
  grpc_endpoint_destroy(ends.client);
}

void AFullStreamEndsWithThePeer(const std::string& fabric) {
  const Ends ends = NewEnds(fabric);
  Operation write;
  write.Add(Random(kMuch, 4));
  write.Write(ends.client);
  for (int i = 0; i < 5; ++i) Poll(grpc_core::Duration::Milliseconds(10));
  Check(!write.done(), "nobody reads");
  grpc_endpoint_destroy(ends.server);
  CheckUnavailable(write.Wait(), "closed");
  grpc_endpoint_destroy(ends.client);
}

// The other end's process is gone, and its part of the fabric says nothing of it.
void TheEndOfTcpIsTheEnd(const std::string& fabric) {
  const auto args = Arguments();
  const grpc_endpoint_pair tcp = TcpPair(args);
  auto pair = ConnectOver(fabric);
  grpc_endpoint* const client =
      NewEnd(protocol::End::kClient, fabric, std::move(pair.connector), tcp.client, args);
  const std::string text = "the last words";
  const iovec part = {const_cast<char*>(text.data()), text.size()};
  Check(fabric::testing::Value(pair.acceptor->Write(&part, 1)) == text.size(), "written");
  Operation read;
  Operation write;
  write.Add(Random(kMuch, 5));
  write.Write(client);
  grpc_endpoint_destroy(tcp.server);
  CheckUnavailable(write.Wait(), "the peer's process closed the connection");
  Check(Receive(client, text.size()) == text, "what it wrote before");
  read.Read(client);
  CheckUnavailable(read.Wait(), "the peer's process closed the connection");
  Check(pair.acceptor->closed(), "and the fabric's other end learns of it");
  grpc_endpoint_destroy(client);
}

void BytesOnTcpAreTheEnd(const std::string& fabric) {
  const auto args = Arguments();
  const grpc_endpoint_pair tcp = TcpPair(args);
  auto pair = ConnectOver(fabric);
  grpc_endpoint_add_to_pollset(tcp.client, Pollset::get());
  grpc_endpoint* const server =
      NewEnd(protocol::End::kServer, fabric, std::move(pair.acceptor), tcp.server, args);
  Operation read;
  read.Read(server);
  Send(tcp.client, "astray");
  CheckUnavailable(read.Wait(), "wrote to TCP after it had left it");
  grpc_endpoint_destroy(server);
  grpc_endpoint_destroy(tcp.client);
}

int Option(int fd, int level, int option) {
  int value = -1;
  socklen_t size = sizeof(value);
  Check(getsockopt(fd, level, option, &value, &size) == 0, "a socket's option");
  return value;
}

// A host that dies sends nothing: the kernel is told to ask for it (tests/verbs/test_faults.py has
// one die).
void TcpIsKeptAlive(const std::string& fabric) {
  const auto args = Arguments();
  const auto listener = fabric::testing::ListenOnLoopback(1);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto* const address = reinterpret_cast<const sockaddr*>(&listener.address);
  Check(connect(fd, address, sizeof(listener.address)) == 0, "a connection");
  Check(grpc_set_socket_nonblocking(fd, 1).ok(), "one that does not block");
  Check(Option(fd, SOL_SOCKET, SO_KEEPALIVE) == 0, "not so by itself");
  grpc_endpoint* const tcp =
      grpc_tcp_create(grpc_fd_create(fd, "tcp", /*track_err=*/false),
                      TcpOptionsFromEndpointConfig(
                          grpc_event_engine::experimental::ChannelArgsEndpointConfig(args)),
                      "the other end");
  auto pair = ConnectOver(fabric);
  grpc_endpoint* const client =
      NewEnd(protocol::End::kClient, fabric, std::move(pair.connector), tcp, args);
  Check(grpc_endpoint_get_fd(client) == fd, "the endpoint's TCP");
  Check(Option(fd, SOL_SOCKET, SO_KEEPALIVE) == 1, "kept alive");
  Check(Option(fd, IPPROTO_TCP, TCP_KEEPIDLE) == kKeepAliveIdleSeconds, "asked after a while");
  Check(Option(fd, IPPROTO_TCP, TCP_KEEPINTVL) == kKeepAliveIntervalSeconds, "and again");
  Check(Option(fd, IPPROTO_TCP, TCP_KEEPCNT) == kKeepAliveProbes, "so often");
  grpc_endpoint_destroy(client);
}

// The link over which a receiver releases what a server holds for it: its own end is not gRPC's.
struct ReceiversLink {
  std::shared_ptr<protocol::Link> client;
  grpc_endpoint* server;
  grpc_endpoint* tcp;  // the client's end; both are the caller's to destroy
};

ReceiversLink NewReceiversLink(const std::string& fabric) {
  const auto args = Arguments();
  const grpc_endpoint_pair tcp = TcpPair(args);
  auto pair = ConnectOver(fabric);
  protocol::Link::Description description;
  description.peer = TestNode()->id();
  return {std::make_shared<protocol::Link>(std::move(description), std::move(pair.connector)),
          NewEnd(protocol::End::kServer, fabric, std::move(pair.acceptor), tcp.server, args),
          tcp.client};
}

// Has the server hold `tensor` for the receiver.
void Hold(uint64_t ticket, const std::shared_ptr<int>& tensor) {
  protocol::Offers::Held held;
  held.keep = tensor;
  protocol::Offers::Held replaced;
  Check(TestNode()->offers().Hold(TestNode()->id(), ticket, std::move(held), &replaced), "held");
}

// More of them than any ring of messages holds.
constexpr int kManyOffers = 1000;

// What the other end releases is let go, though nobody reads the stream, which has bytes.
void ReleasesAreTakenBesideABusyStream(const std::string& fabric) {
  const auto [client, server, tcp] = NewReceiversLink(fabric);
  protocol::Offers& offers = TestNode()->offers();
  const auto tensor = std::make_shared<int>(1);
  for (int ticket = 1; ticket <= kManyOffers; ++ticket) Hold(ticket, tensor);
  const std::string text = Random(100, 7);
  const iovec part = {const_cast<char*>(text.data()), text.size()};
  Check(fabric::testing::Value(client->Write(&part, 1)) == text.size(), "bytes that lie there");
  Operation read;
  for (int ticket = 1; ticket <= kManyOffers; ++ticket) {
    Check(client->PostRelease(ticket), "posted");
    if (ticket % 100 != 0) continue;
    // Each read finds bytes at once.
    read.Read(server);
    CheckOk(read.Wait());
    Check(client->FlushMessages().ok(), "sent");
    Check(fabric::testing::Value(client->Write(&part, 1)) == text.size(), "more bytes");
  }
  for (int i = 0; i < 200 && (tensor.use_count() > 1 || client->HasUnsentMessages()); ++i) {
    read.Read(server);
    CheckOk(read.Wait());
    Check(client->FlushMessages().ok(), "sent");
    Check(fabric::testing::Value(client->Write(&part, 1)) == text.size(), "more bytes");
    Poll(grpc_core::Duration::Milliseconds(1));
  }
  Check(tensor.use_count() == 1 && offers.open() == 0, "all are let go");
  grpc_endpoint_destroy(server);
  grpc_endpoint_destroy(tcp);
}

// A ring is the peer's to make, and may be large: no read makes more of it than a share.
void AReadTakesAShare(const std::string& fabric) {
  const auto args = Arguments();
  const grpc_endpoint_pair tcp = TcpPair(args);
  auto pair = RingsOf(size_t{16} << 20);
  grpc_endpoint* const server =
      NewEnd(protocol::End::kServer, fabric, std::move(pair.acceptor), tcp.server, args);
  const std::string text = Random(size_t{12} << 20, 9);
  const iovec part = {const_cast<char*>(text.data()), text.size()};
  Check(fabric::testing::Value(pair.connector->Write(&part, 1)) == text.size(), "written");
  std::string got;
  Operation read;
  while (got.size() < text.size()) {
    read.Read(server);
    CheckOk(read.Wait());
    const std::string share = read.Take();
    Check(share.size() <= size_t{1} << 20, "a share: " + std::to_string(share.size()));
    got += share;
  }
  Check(got == text, "all of it");
  grpc_endpoint_destroy(server);
  grpc_endpoint_destroy(tcp.client);
}

// What was released just before the end counts, as another link may keep the receiver's offers.
void ReleasesBeforeTheEndAreTaken(const std::string& fabric) {
  const Ends other = NewEnds(fabric);
  const auto [client, server, tcp] = NewReceiversLink(fabric);
  const auto tensor = std::make_shared<int>(1);
  Hold(1, tensor);
  Check(client->PostRelease(1), "posted");
  grpc_endpoint_destroy(server);
  Check(tensor.use_count() == 1, "let go");
  grpc_endpoint_destroy(tcp);
  Destroy(other);
}

// A thread that batches what it releases tells of it before it sleeps, or at once where gRPC's
// engine would not say when it does.
void ReleasesGoBeforeAThreadSleeps(const std::string& fabric) {
  const auto [client, server, tcp] = NewReceiversLink(fabric);
  Operation read;
  read.Read(server);
  const auto tensor = std::make_shared<int>(1);
  const BatchedReleases releases;
  for (int ticket = 1; ticket <= 3; ++ticket) {
    Hold(ticket, tensor);
    Check(protocol::ReleaseBatch::Release(client, ticket, /*bytes=*/100), "released");
  }
  const bool batches = grpc_get_poll_strategy_name() == std::string("poll");
  Check(client->HasUnsentMessages() == batches, "they wait where a batch can be");
  const auto deadline = grpc_core::Timestamp::Now() + grpc_core::Duration::Seconds(10);
  while (tensor.use_count() > 1) {
    Check(grpc_core::Timestamp::Now() < deadline, "all are let go");
    Poll(grpc_core::Duration::Seconds(1));
  }
  grpc_endpoint_destroy(server);
  (void)read.Wait();
  grpc_endpoint_destroy(tcp);
}

// One direction: writes pieces of any size and checks what arrives, both without pause.
class Flow {
 public:
  Flow(grpc_endpoint* from, grpc_endpoint* to, size_t total, int seed)
      : from_(from), to_(to), total_(total), sizes_(seed), outgoing_(seed), incoming_(seed) {
    grpc_slice_buffer_init(&written_);
    grpc_slice_buffer_init(&read_);
    GRPC_CLOSURE_INIT(
        &on_written_,
        [](void* self, grpc_error_handle error) { static_cast<Flow*>(self)->Write(error); }, this,
        nullptr);
    GRPC_CLOSURE_INIT(
        &on_read_,
        [](void* self, grpc_error_handle error) { static_cast<Flow*>(self)->Read(error); }, this,
        nullptr);
  }
  ~Flow() {
    grpc_slice_buffer_destroy(&written_);
    grpc_slice_buffer_destroy(&read_);
  }

  void Start() {
    Read(absl::OkStatus());
    Write(absl::OkStatus());
  }
  bool done() const { return wrote_all_ && read_all_; }

 private:
  void Write(grpc_error_handle error) {
    CheckOk(error);
    grpc_slice_buffer_reset_and_unref(&written_);
    if (sent_ == total_) {
      wrote_all_ = true;
      return;
    }
    const int slices = 1 + sizes_() % 100;
    for (int i = 0; i < slices && sent_ < total_; ++i) {
      const size_t size = std::min<size_t>(total_ - sent_, size_t{1} << (sizes_() % 16));
      grpc_slice slice = grpc_slice_malloc(size);
      for (size_t at = 0; at < size; ++at) GRPC_SLICE_START_PTR(slice)[at] = outgoing_();
      grpc_slice_buffer_add_indexed(&written_, slice);
      sent_ += size;
    }
    grpc_endpoint_write(from_, &written_, &on_written_, nullptr, INT_MAX);
  }

  void Read(grpc_error_handle error) {
    CheckOk(error);
    for (size_t i = 0; i < read_.count; ++i) {
      const grpc_slice& slice = read_.slices[i];
      for (size_t at = 0; at < GRPC_SLICE_LENGTH(slice); ++at) {
        Check(GRPC_SLICE_START_PTR(slice)[at] == static_cast<uint8_t>(incoming_()), "the bytes");
      }
      received_ += GRPC_SLICE_LENGTH(slice);
    }
    if (received_ == total_) {
      read_all_ = true;
      return;
    }
    grpc_endpoint_read(to_, &read_, &on_read_, /*urgent=*/false, /*min_progress_size=*/1);
  }

  grpc_endpoint* const from_;
  grpc_endpoint* const to_;
  const size_t total_;
  std::minstd_rand sizes_;
  std::minstd_rand outgoing_;
  std::minstd_rand incoming_;
  size_t sent_ = 0;
  size_t received_ = 0;
  std::atomic<bool> wrote_all_{false};
  std::atomic<bool> read_all_{false};
  grpc_slice_buffer written_;
  grpc_slice_buffer read_;
  grpc_closure on_written_;
  grpc_closure on_read_;
};

void BothWaysAtOnceWithManyPollers(const std::string& fabric) {
  constexpr int kPairs = 3;
  constexpr int kThreads = 4;
  const size_t total = (fabric == "rings" ? size_t{1} : size_t{8}) << 20;
  std::vector<Ends> pairs;
  std::vector<std::unique_ptr<Flow>> flows;
  for (int i = 0; i < kPairs; ++i) {
    pairs.push_back(NewEnds(fabric));
    flows.push_back(std::make_unique<Flow>(pairs[i].client, pairs[i].server, total, 2 * i + 1));
    flows.push_back(std::make_unique<Flow>(pairs[i].server, pairs[i].client, total, 2 * i + 2));
  }
  const auto deadline = grpc_core::Timestamp::Now() + grpc_core::Duration::Seconds(60);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&flows, deadline, i] {
      grpc_core::ExecCtx exec_ctx;
      for (size_t flow = i; flow < flows.size(); flow += kThreads) flows[flow]->Start();
      exec_ctx.Flush();
      for (const auto& flow : flows) {
        while (!flow->done()) {
          Check(grpc_core::Timestamp::Now() < deadline, "they end in time");
          Poll(grpc_core::Duration::Milliseconds(20));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ends& ends : pairs) Destroy(ends);
}

// Shut down by one thread while others are in the midst of it: every operation ends, once.
void ShutdownMayComeAtAnyTime(const std::string& fabric) {
  const std::string text = Random(kMuch, 6);
  for (int round = 0; round < 50; ++round) {
    const Ends ends = NewEnds(fabric);
    Operation reads[2];
    Operation writes[2];
    writes[0].Add(text.substr(0, 100000));
    writes[1].Add(text);
    std::thread other([&] {
      grpc_core::ExecCtx exec_ctx;
      grpc_endpoint_shutdown(round % 2 == 0 ? ends.client : ends.server,
                             GRPC_ERROR_CREATE("by the test"));
    });
    reads[0].Read(ends.client);
    writes[0].Write(ends.server);
    reads[1].Read(ends.server);
    writes[1].Write(ends.client);
    other.join();
    Check(!writes[1].Wait().ok(), "more than a ring holds, to nobody");
    for (Operation* operation : {&reads[0], &reads[1], &writes[0]}) (void)operation->Wait();
    Destroy(ends);
  }
}

}  // namespace

bool RunContractCase(const std::string& fabric, const std::string& name) {
  static const auto* const cases = new std::map<std::string, void (*)(const std::string&)>{
      {"shutdown", ReadsAndWritesFailAfterShutdown},
      {"destroy", DestructionEndsWhatIsUnderWay},
      {"slices", AnySlicesArriveInOrder},
      {"last-words", WhatWasWrittenBeforeTheEndIsRead},
      {"full", AFullStreamEndsWithThePeer},
      {"tcp-end", TheEndOfTcpIsTheEnd},
      {"tcp-bytes", BytesOnTcpAreTheEnd},
      {"keep-alive", TcpIsKeptAlive},
      {"releases", ReleasesAreTakenBesideABusyStream},
      {"last-releases", ReleasesBeforeTheEndAreTaken},
      {"batched-releases", ReleasesGoBeforeAThreadSleeps},
      {"share", AReadTakesAShare},
      {"both-ways", BothWaysAtOnceWithManyPollers},
      {"race", ShutdownMayComeAtAnyTime},
  };
  const auto found = cases->find(name);
  if (found == cases->end()) return false;
  found->second(fabric);
  std::printf("ok %s over %s\n", name.c_str(), fabric.c_str());
  return true;
}

}  // namespace ar_grpc::testing
