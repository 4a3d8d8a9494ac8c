// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_FABRIC_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_FABRIC_H_

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"

// What moves bytes between two processes, and nothing else: no protocol, no gRPC, no TensorFlow.
//
// A fabric is a Context (one per process), which gives Listeners, Connections and Regions. To add
// one: implement these four, add it to registry.cc, and run tests/conformance over it. The split
// is that of PyTorch's TensorPipe (transport contexts with one reactor each) and of Gloo's
// transports.
namespace ar_grpc::fabric {

// A fixed-size message beside the byte stream, for the protocol's own words.
struct Message {
  static constexpr size_t kSize = 32;
  std::array<uint8_t, kSize> bytes{};
};

// Memory of this process that peers may read while they are connected. Its owner writes it
// through `data()`; a peer never can. Destroying it does not take it from a peer that mapped it.
class Region {
 public:
  virtual ~Region() = default;
  virtual uint8_t* data() const = 0;
  virtual size_t size() const = 0;
  // Returns the pages of [offset, offset + length) to the system; they read as zeros. Both are
  // multiples of the page size.
  virtual Status Discard(size_t offset, size_t length) = 0;
  // In a child after fork: what the child writes stays its own, and it offers the region to nobody.
  // Pages that it has not written may still show what the parent writes. Async-signal-safe.
  virtual void MakePrivateAfterFork() = 0;
};

// One end of an established connection: a byte stream each way, small messages each way, and
// one-sided reads of the region that the other end offers.
//
// Write and Post may be called by one thread at a time, Read and Take likewise; the two groups and
// Get do not exclude each other. No call blocks. After an error every call gives one.
class Connection {
 public:
  virtual ~Connection() = default;

  // Copies as much of `parts` as there is room for into the stream and wakes the peer if it
  // sleeps. Returns the bytes taken; 0 when full.
  virtual StatusOr<size_t> Write(const iovec* parts, int count) = 0;
  // Copies up to `size` bytes of the stream to `into`. Returns the bytes read; 0 when empty.
  virtual StatusOr<size_t> Read(void* into, size_t size) = 0;
  // Bytes of the stream that Read would find now.
  virtual StatusOr<size_t> Readable() = 0;

  // Sends a message and wakes the peer if it sleeps. false when there is no room now.
  virtual StatusOr<bool> Post(const Message& message) = 0;
  // Receives a message. false when there is none.
  virtual StatusOr<bool> Take(Message* message) = 0;

  // The size in bytes of the region that the peer offers; 0 when it offers none.
  virtual uint64_t remote_size() const = 0;
  // Reads `size` bytes at `offset` of the peer's region. `done` runs once, perhaps before this
  // returns, on any thread; it must not block. kInvalidArgument for a range outside of the region.
  // kUnavailable once either end is closed, also when that happens while it reads. Any number of
  // threads may call it. `into` must stay valid until `done`.
  virtual void Get(uint64_t offset, void* into, size_t size, std::function<void(Status)> done) = 0;

  // A descriptor that polls readable after the peer wakes this end. Owned by the connection.
  virtual int wake_fd() const = 0;
  // To be called when wake_fd() is readable, before the stream is looked at.
  virtual void ClearWake() = 0;
  // Asks to be woken for stream bytes or a message. false: there is one already, do not sleep.
  virtual StatusOr<bool> ArmRead() = 0;
  // After a short Write or a refused Post: asks to be woken for room in what was full, when much of
  // it is free again. false: there is room already, do not sleep.
  virtual StatusOr<bool> ArmWrite() = 0;
  // The same for a refused Post alone, whatever the stream has room for. Like Post, one thread.
  virtual StatusOr<bool> ArmPost() = 0;
  // Marks the stream closed for both ends and wakes both. What was written can still be read;
  // then Read gives kUnavailable. Idempotent, any thread.
  virtual void Close() = 0;
  // Whether either end has called Close. What Get copied before that is good.
  virtual bool closed() const = 0;

  // Payload moved so far, in bytes.
  virtual uint64_t stream_bytes_sent() const = 0;
  virtual uint64_t stream_bytes_received() const = 0;
  virtual uint64_t get_bytes() const = 0;
};

using ConnectDone = std::function<void(StatusOr<std::unique_ptr<Connection>>)>;

// Waits for peers that show an expected token. The callbacks run on the reactor's thread.
class Listener {
 public:
  virtual ~Listener() = default;
  // Where peers connect, as text for Context::Connect in another process.
  virtual std::string address() const = 0;
  // The first connection that shows `token` goes to `done`; an impostor's is closed. Called at most
  // once, never after Forget has returned, and before the connecting end's callback.
  virtual void Expect(const Token& token, ConnectDone done) = 0;
  virtual void Forget(const Token& token) = 0;
};

// A fabric in this process. Thread-safe. Lives until the process ends.
class Context {
 public:
  virtual ~Context() = default;
  virtual const char* name() const = 0;
  // kOk, or why no peer can be reached over it from this machine or process.
  virtual Status Available() = 0;
  // Memory that peers of later connections may read; one per context at a time is offered. Pages
  // take memory when first touched. kResourceExhausted names the limit that is too small.
  virtual StatusOr<std::shared_ptr<Region>> Allocate(size_t size) = 0;
  // What later connections offer to their peers; nullptr ends that.
  virtual void Offer(std::shared_ptr<Region> region) = 0;
  virtual StatusOr<std::unique_ptr<Listener>> Listen() = 0;
  // Connects to another process's Listener. `done` runs once, on the reactor's thread; with
  // kDeadlineExceeded after `timeout_ms`. An error: it cannot even begin, and `done` never runs.
  virtual Status Connect(const std::string& address, const Token& token, int timeout_ms,
                         ConnectDone done) = 0;
};

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_FABRIC_H_
