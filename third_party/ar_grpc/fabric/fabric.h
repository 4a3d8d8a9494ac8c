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

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/memory/segment.h"

// What moves bytes between two processes, and nothing else: no protocol, no gRPC, no TensorFlow.
//
// A fabric is a Context. It says whom it reaches (a brochure), registers memory that peers may
// access, and makes one end of a Connection by an Attachment. To add a fabric: implement these
// classes in a folder beside shm/, add it to registry.cc, and run tests/conformance over it. The
// split is that of PyTorch's TensorPipe (descriptors that say who reaches whom, transports and
// channels) and of UCX (memory domains with packed remote keys).
namespace ar_grpc::fabric {

// What the connections of a fabric can do. A call that a fabric cannot do gives kUnimplemented.
struct Capabilities {
  // Write, Read, Post, Take and their kin. Without it gRPC's byte stream stays on TCP, and an end
  // learns that the other has closed only when its next operation fails.
  bool stream = false;
  // One-sided reads of a peer's registered memory.
  bool get = false;
  // One-sided writes into memory that a peer registered with Access::kWrite.
  bool put = false;
  // A peer's registered memory can be read in place.
  bool map = false;
  // A Get is over when the call returns, and only the calling thread writes its target.
  bool inline_get = false;
  // Registering pins the pages and takes milliseconds: only ranges that hold memory are registered,
  // where nobody waits, and they are deregistered before their pages are discarded.
  bool pins = false;
  // It leaves the host: who listens on the network between reads its bytes and keys.
  bool crosses_network = false;
  // Bytes of the stream that an end may have under way before the peer has taken some of them; 0:
  // what limits them is not the distance.
  uint64_t stream_window = 0;
};

// How a peer names registered memory, in its Get, Put and Map. Opaque to all but the fabric that
// gave it, and never longer than kLargestKey.
using Key = std::string;
inline constexpr size_t kLargestKey = 64;

enum class Access { kRead, kWrite };

// A range of a segment that peers of one context may access. Ends when it is destroyed: then no
// later access of a peer succeeds, but on a fabric whose peers map the memory (`map`).
class Registration {
 public:
  virtual ~Registration() = default;
  virtual const std::shared_ptr<memory::Segment>& segment() const = 0;
  // The range's first byte, counted from the segment's, and its size in bytes.
  virtual uint64_t offset() const = 0;
  virtual uint64_t size() const = 0;
  // From now on no operation of this process begins to use it for its own end. Whether none uses it
  // now: then destroying it ends it before that returns, else it ends with the last of them.
  virtual bool Retire() { return true; }
  // false: the device has failed, and no connection has a use for it any more.
  virtual bool usable() const { return true; }
};

// A fixed-size message beside the byte stream, for the protocol's own words.
struct Message {
  static constexpr size_t kSize = 32;
  std::array<uint8_t, kSize> bytes{};
};

// The end of a one-sided operation. It runs once, holding no lock, on any thread, perhaps before
// the call that started the operation returns; it must not block.
using Done = std::function<void(Status)>;

// A peer's memory, readable in place while this lives.
struct Lease {
  std::shared_ptr<const uint8_t> data;
  uint64_t size = 0;
};

// One end of an established connection: a byte stream and small messages each way (`stream`), and
// one-sided access to what the other end has exported.
//
// Write and Post may be called by one thread at a time, Read and Take likewise; the two groups and
// the one-sided calls do not exclude each other. No call blocks. After an error of the connection
// every call gives one. Destroying it closes it.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual Capabilities capabilities() const = 0;

  // --- the stream ---

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
  // A descriptor that polls readable after the peer wakes this end. Owned by the connection; -1
  // without a stream.
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

  // --- one-sided access; any number of threads ---

  // Lets the peer access `registration`, which must be of this connection's context, and returns
  // the key to tell it. kUnavailable once the connection is closed. The same registration gives the
  // same key again. The registration must outlive the peer's use of the key.
  virtual StatusOr<Key> Export(const std::shared_ptr<Registration>& registration) = 0;
  // Reads `size` bytes at `offset` of what the peer exported under `key`. kInvalidArgument for a
  // key or a range that the peer did not give; for a key that has ended with its registration this
  // may break the connection, and be kUnavailable. kUnavailable once either end is closed, also
  // when that happens while it reads. `into` may be written until `done` runs, and `keep`, which
  // owns it, is held until then: what a device has been told to write cannot be recalled.
  virtual void Get(const Key& key, uint64_t offset, void* into, size_t size,
                   std::shared_ptr<const void> keep, Done done) = 0;
  // Writes `size` bytes into what the peer exported with Access::kWrite. `from` is read until
  // `done` runs; by then the peer's memory has the bytes.
  virtual void Put(const Key& key, uint64_t offset, const void* from, size_t size,
                   std::shared_ptr<const void> keep, Done done) = 0;
  virtual StatusOr<Lease> Map(const Key& key, uint64_t offset, size_t size) = 0;
  // Runs the ends of operations that are complete, in this thread. A fabric does so by itself (from
  // the reactor); who waits for one may call it to save the change of threads.
  virtual void Progress() = 0;

  // --- the end ---

  // Closes for both ends. With a stream it wakes both, and what was written can still be read; then
  // Read gives kUnavailable. Without one the peer's next operation gives kUnavailable, perhaps
  // seconds after it began, and only then is closed() true there; the stream's calls give
  // kUnimplemented as before. `done`, which may be empty, runs once, after the last access to this
  // process's memory by the peer or a device over this connection: all operations have ended by
  // then. Where the peer maps memory (`map`) it cannot be taken back; the reader's look at closed()
  // after its copy stands for it. Any thread, any number of times.
  virtual void Close(std::function<void()> done) = 0;
  // Whether either end has closed, as far as this one knows. What Get copied before that is good.
  virtual bool closed() const = 0;

  // Payload moved so far, in bytes.
  virtual uint64_t stream_bytes_sent() const = 0;
  virtual uint64_t stream_bytes_received() const = 0;
  virtual uint64_t get_bytes() const = 0;
};

// What an attachment tells its owner. Both may run on any thread, also before the call that led to
// them returns, and once more after the Attachment is destroyed if they were under way by then.
// Neither may block.
struct AttachEvents {
  // A frame for the peer's attachment, at most kLargestAttachFrame bytes, opaque to who carries it.
  std::function<void(std::string frame)> send;
  // This end of the connection, or why there is none. Once.
  std::function<void(StatusOr<std::unique_ptr<Connection>> connection)> done;
};
inline constexpr size_t kLargestAttachFrame = 1024;

// One end of a connection in the making. Destroying it gives up; that never blocks.
class Attachment {
 public:
  virtual ~Attachment() = default;
  // A frame from the peer's attachment: untrusted bytes. One thread at a time.
  virtual void TakeFrame(const std::string& frame) = 0;
};

inline constexpr size_t kLargestBrochure = 512;

// A fabric in this process. Thread-safe. Lives until the process ends.
class Context {
 public:
  virtual ~Context() = default;
  virtual const char* name() const = 0;
  virtual Capabilities capabilities() const = 0;
  // kOk, or why no peer can be reached over it from this machine or process.
  virtual Status Available() = 0;
  // Who can be reached here, for the Reaches of a peer's context of the same name: at most
  // kLargestBrochure opaque bytes. Asked for once per handshake.
  virtual StatusOr<std::string> Brochure() = 0;
  // kOk where a peer with this brochure may be reached, as far as can be told without trying, else
  // why not. The bytes are untrusted.
  virtual Status Reaches(const std::string& brochure) = 0;
  // Lets peers access [offset, offset + size) of `segment`. kResourceExhausted names the limit that
  // is too small.
  virtual StatusOr<std::shared_ptr<Registration>> Register(std::shared_ptr<memory::Segment> segment,
                                                           uint64_t offset, uint64_t size,
                                                           Access access) = 0;
  // The server's end and the client's end of an attachment. The server's sends the first frame. An
  // error: it cannot even begin, and no event runs.
  virtual StatusOr<std::unique_ptr<Attachment>> Accept(AttachEvents events) = 0;
  virtual StatusOr<std::unique_ptr<Attachment>> Connect(AttachEvents events) = 0;
};

}  // namespace ar_grpc::fabric

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_FABRIC_H_
