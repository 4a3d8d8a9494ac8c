// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/drained.h"

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/method_handler.h>
#include <grpcpp/impl/codegen/service_type.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/base/os.h"

namespace ar_grpc::testing {
namespace {

using fabric::testing::Check;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr char kMethod[] = "/drained/Get";
// More than the client's kernel takes before it reads, less than the server's does.
constexpr size_t kInTheKernel = size_t{256} << 10;
// More than both take, so that the server's write does not end.
constexpr size_t kBlocksTheWriter = size_t{64} << 20;

// Answers each request, a number in decimal, with so many bytes, once it may.
class Bytes final : public grpc::Service {
 public:
  Bytes() {
    using Handler = grpc::internal::RpcMethodHandler<Bytes, grpc::ByteBuffer, grpc::ByteBuffer>;
    const auto get = [](Bytes* self, grpc::ServerContext*, const grpc::ByteBuffer* request,
                        grpc::ByteBuffer* answer) { return self->Get(*request, answer); };
    AddMethod(new grpc::internal::RpcServiceMethod(kMethod, grpc::internal::RpcMethod::NORMAL_RPC,
                                                   new Handler(get, this)));
  }
  void Release() {
    const std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  // So many requests have come, in time.
  bool AwaitServed(int count, milliseconds time) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, time, [&] { return served_ >= count; });
  }

 private:
  grpc::Status Get(const grpc::ByteBuffer& request, grpc::ByteBuffer* answer) {
    grpc::Slice digits;
    Check(request.DumpToSingleSlice(&digits).ok(), "a request");
    const size_t size = std::stoul(std::string(digits.begin(), digits.end()));
    std::unique_lock lock(mutex_);
    ++served_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return released_; });
    const grpc::Slice bytes(std::string(size, 'x'));
    *answer = grpc::ByteBuffer(&bytes, 1);
    return grpc::Status::OK;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int served_ = 0;
  bool released_ = false;
};

enum FrameType : uint8_t { kData = 0, kHeaders = 1, kSettings = 4, kPing = 6, kGoaway = 7 };
constexpr uint8_t kAck = 1;
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kEndHeaders = 4;
constexpr uint8_t kWindowUpdate = 8;

struct Frame {
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t stream = 0;
  std::string payload;
};

std::string BigEndian(uint32_t value) {
  const uint32_t bytes = htonl(value);
  return {reinterpret_cast<const char*>(&bytes), sizeof(bytes)};
}

uint32_t FromBigEndian(const std::string& bytes, size_t at) {
  uint32_t value;
  memcpy(&value, bytes.data() + at, sizeof(value));
  return ntohl(value);
}

// HTTP/2 (RFC 9113) by hand, as a client that acknowledges and reads when the test wants it.
class Http2Client {
 public:
  explicit Http2Client(int port) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int small = 4096;
    Check(setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0, "small");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    Check(connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0,
          "connected");
    Write("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    const uint32_t window = INT_MAX;
    Send({kSettings, 0, 0, std::string("\0\x04", 2) + BigEndian(window)});
    Send({kWindowUpdate, 0, 0, BigEndian(window - 65535)});
  }

  void Request(uint32_t stream, size_t size) {
    std::string headers = "\x83\x86";  // :method POST, :scheme http, as all of RFC 7541's table
    const auto add = [&](const std::string& name, const std::string& value) {
      headers += name + static_cast<char>(value.size()) + value;
    };
    add("\x04", kMethod);
    add("\x01", "localhost");
    add("\x0f\x10", "application/grpc");
    add(std::string("\0\x02te", 4), "trailers");
    Send({kHeaders, kEndHeaders, stream, headers});
    const std::string digits = std::to_string(size);
    const std::string message = '\0' + BigEndian(static_cast<uint32_t>(digits.size())) + digits;
    Send({kData, kEndStream, stream, message});
  }
  void Send(const Frame& frame) {
    const auto size = static_cast<uint32_t>(frame.payload.size());
    Write(BigEndian(size).substr(1) + static_cast<char>(frame.type) +
          static_cast<char>(frame.flags) + BigEndian(frame.stream) + frame.payload);
  }
  // None where the connection has ended, in order or not.
  std::optional<Frame> Next() {
    const std::optional<std::string> head = Read(9);
    if (!head.has_value()) return std::nullopt;
    Frame frame{static_cast<uint8_t>((*head)[3]), static_cast<uint8_t>((*head)[4]),
                FromBigEndian(*head, 5), ""};
    const std::optional<std::string> payload = Read(FromBigEndian('\0' + head->substr(0, 3), 0));
    if (!payload.has_value()) return std::nullopt;
    frame.payload = *payload;
    if (frame.type == kData) data_ += frame.payload.size();
    return frame;
  }
  Frame NextOf(uint8_t type) {
    for (;;) {
      const std::optional<Frame> frame = Next();
      Check(frame.has_value(), "a frame of that type before the end");
      if (frame->type == type && (frame->flags & kAck) == 0) return *frame;
    }
  }
  // Of all streams, with the five bytes before each message.
  size_t data() const { return data_; }
  // Of the end that Next() saw: 0 where it was in order.
  int error() const { return error_; }

 private:
  void Write(const std::string& bytes) {
    const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    Check(sent == static_cast<ssize_t>(bytes.size()), "sent");
  }
  std::optional<std::string> Read(size_t size) {
    std::string bytes(size, '\0');
    for (size_t got = 0; got < size;) {
      pollfd readable{socket_.get(), POLLIN, 0};
      Check(poll(&readable, 1, 20000) == 1, "something to read in time");
      const ssize_t some = recv(socket_.get(), bytes.data() + got, size - got, 0);
      if (some <= 0) {
        error_ = some < 0 ? errno : 0;
        return std::nullopt;
      }
      got += static_cast<size_t>(some);
    }
    return bytes;
  }

  UniqueFd socket_;
  size_t data_ = 0;
  int error_ = 0;
};

// A server that drains each connection at once, and a client of it.
class Draining {
 public:
  Draining() : server_(Start()), client_(std::make_unique<Http2Client>(port_)) {}
  ~Draining() { service_.Release(); }

  Bytes* service() { return &service_; }
  Http2Client* client() { return client_.get(); }

  // The first GOAWAY, which allows every stream, has been read; returns the PING that asks whether.
  Frame AwaitDraining() {
    Check(FromBigEndian(client_->NextOf(kGoaway).payload, 0) == INT_MAX, "every stream, so far");
    return client_->NextOf(kPing);
  }
  void Acknowledge(const Frame& ping) { client_->Send({kPing, kAck, 0, ping.payload}); }
  // How long the server takes to end when its client has gone.
  Clock::duration Leave() {
    client_.reset();
    const Clock::time_point began = Clock::now();
    server_->Shutdown(std::chrono::system_clock::now() + seconds(20));
    return Clock::now() - began;
  }

 private:
  std::unique_ptr<grpc::Server> Start() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&service_);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, 100);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, INT_MAX);
    // Else there are other PINGs.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    return builder.BuildAndStart();
  }

  Bytes service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Http2Client> client_;
};

// A connection of which the server has written all: the last response lies in the kernel.
void Drain(Draining* draining) {
  Http2Client* const client = draining->client();
  client->Request(1, kInTheKernel);
  draining->Acknowledge(draining->AwaitDraining());
  Check(FromBigEndian(client->NextOf(kGoaway).payload, 0) == 1, "up to the first stream");
  draining->service()->Release();
  std::this_thread::sleep_for(milliseconds(300));
}

// Reads until the stream ends, or the connection.
void ReadResponse(Http2Client* client) {
  for (std::optional<Frame> frame; (frame = client->Next()).has_value();) {
    if (frame->type == kHeaders && (frame->flags & kEndStream) != 0) return;
  }
}

// What a client sends before it has read all takes nothing from the last response.
void LateFrames() {
  Draining draining;
  Drain(&draining);
  Http2Client* const client = draining.client();
  client->Send({kPing, 0, 0, "12345678"});
  std::this_thread::sleep_for(milliseconds(100));
  ReadResponse(client);
  std::printf("data=%zu error=%d\n", client->data(), client->error());
  Check(client->data() == 5 + kInTheKernel && client->error() == 0, "all of the response");
  // The client's end is the connection's.
  Check(draining.Leave() < seconds(2), "no wait for a client that has gone");
}

// A client that does not close has the connection for some seconds.
void LeftOpen() {
  Draining draining;
  const Clock::time_point began = Clock::now();
  Drain(&draining);
  ReadResponse(draining.client());
  while (draining.client()->Next().has_value()) {
  }
  const Clock::duration kept = Clock::now() - began;
  Check(draining.client()->error() == 0, "an end in order");
  Check(kept > seconds(4) && kept < seconds(15), "neither at once nor for good");
}

// The last GOAWAY names a stream; none after it is served, as the client sends those again.
void LastStream() {
  Draining draining;
  Http2Client* const client = draining.client();
  const Frame ping = draining.AwaitDraining();
  draining.service()->Release();
  // Whatever comes next waits behind this one's bytes, which nobody reads.
  client->Request(1, kBlocksTheWriter);
  Check(draining.service()->AwaitServed(1, seconds(10)), "the first stream");
  std::this_thread::sleep_for(milliseconds(300));
  draining.Acknowledge(ping);
  std::this_thread::sleep_for(milliseconds(100));
  client->Request(3, 1);
  const bool served = draining.service()->AwaitServed(2, milliseconds(500));
  Check(FromBigEndian(client->NextOf(kGoaway).payload, 0) == 1, "up to the first stream");
  Check(!served, "a stream after the last");
  ReadResponse(client);
  Check(client->data() == 5 + kBlocksTheWriter, "all of the first");
}

}  // namespace

bool RunDrainedCase(const std::string& name) {
  if (name == "late-frames") {
    LateFrames();
  } else if (name == "left-open") {
    LeftOpen();
  } else if (name == "last-stream") {
    LastStream();
  } else {
    return false;
  }
  std::printf("ok %s\n", name.c_str());
  return true;
}

}  // namespace ar_grpc::testing
