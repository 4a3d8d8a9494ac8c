// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_CHANNEL_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_CHANNEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "google/protobuf/any.pb.h"
#include "grpcpp/support/byte_buffer.h"
#include "tensorflow/core/distributed_runtime/call_options.h"
#include "tensorflow/core/distributed_runtime/tensor_coding.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/lib/core/threadpool.h"
#include "tensorflow/core/platform/status.h"
#include "tensorflow/core/protobuf/worker.pb.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/write_gate.h"

// How tensors travel between servers. TensorFlow asks for each by a RecvTensor or RecvBuf call; a
// channel may add to the request and to the response, in their transport_options, and bring the
// bytes by a way of its own. A peer that does not know these options ignores them and answers with
// the bytes.
//
// A server has one channel. GrpcWorker asks it how to answer (the sender's side); each
// GrpcRemoteWorker, of which a worker cache has one for a task, has a TensorPeer of it (the
// receiver's side).
namespace ar_grpc {

// How GrpcRemoteWorker calls its peer, for calls that are the channel's own.
struct TensorCaller {
  // Bytes that such a call's response is copied to, as long as `gate` lets it.
  struct Chunk {
    uint8_t* into = nullptr;
    uint64_t size = 0;
    std::shared_ptr<protocol::WriteGate> gate;
  };
  // Starts a RecvTensor call whose response is the bytes of a chunk. `options` may be nullptr.
  std::function<void(tensorflow::CallOptions* options, const tensorflow::RecvTensorRequest& request,
                     Chunk* chunk, tensorflow::StatusCallback done)>
      call;
  // For copies in parallel; nullptr: in the thread that received the response.
  tensorflow::thread::ThreadPool* threadpool = nullptr;
  // The task's name, for errors.
  std::string target;
};

// Copies a chunk's response to where it belongs; false when it has another size, or when nothing
// may be written there any more.
bool ParseChunk(::grpc::ByteBuffer* source, TensorCaller::Chunk* chunk);

// The receiver's side of a channel, towards one peer. This one takes tensors out of the responses.
class TensorPeer {
 public:
  // Makes a call, with these options, which may be nullptr; `request` is serialized before it
  // returns.
  template <typename Request>
  using Call = std::function<void(tensorflow::CallOptions* options, const Request& request,
                                  tensorflow::StatusCallback done)>;

  virtual ~TensorPeer() = default;

  // Makes the call for a tensor, and calls `done` once `response` has it, perhaps in another
  // thread. What `options` cancel, here and below, is whichever part of it is under way. `request`
  // and `response` stay until `done`.
  virtual void ReceiveTensor(tensorflow::CallOptions* options,
                             const tensorflow::RecvTensorRequest& request,
                             tensorflow::TensorResponse* response,
                             Call<tensorflow::RecvTensorRequest> call,
                             tensorflow::StatusCallback done);
  // The same for a collective's buffer: the bytes are where `request` says. They are written there
  // by way of the buffer's gate alone, which is this thread's ScopedBufferGate
  // (collective_buffer.h).
  virtual void ReceiveBuffer(tensorflow::CallOptions* options,
                             std::shared_ptr<tensorflow::RecvBufRequest> request,
                             tensorflow::RecvBufResponse* response,
                             Call<tensorflow::RecvBufRequest> call,
                             tensorflow::StatusCallback done);
};

// This one sends tensors in the responses.
class TensorChannel {
 public:
  // That of servers which have no other. Never null.
  static const std::shared_ptr<TensorChannel>& InResponses();

  virtual ~TensorChannel() = default;

  virtual std::shared_ptr<TensorPeer> NewPeer(std::shared_ptr<const TensorCaller> caller);

  // --- the sender's side ---

  // Whether `request` is one of the channel's own, as its TensorPeer makes them by TensorCaller.
  // Then `done` is called, perhaps later, and `response` is what the peer's chunk gets: no
  // protobuf. `options` tell of a call that nobody waits for any more; all stay until `done`.
  virtual bool ServeOwnCall(tensorflow::CallOptions* options,
                            const tensorflow::RecvTensorRequest& request,
                            ::grpc::ByteBuffer* response, const tensorflow::StatusCallback& done);

  // Writes the response to a RecvTensor request: the bytes, or how the peer gets them.
  // InvalidArgument for a tensor that is too large for one message and cannot go another way to
  // this peer.
  virtual tensorflow::Status Encode(const tensorflow::RecvTensorRequest& request, bool is_dead,
                                    const tensorflow::Tensor& tensor, bool require_ack,
                                    ::grpc::ByteBuffer* response);

  // Answers a RecvTensor request: Encodes the response, and calls `done` once it may be sent,
  // perhaps later. `request` and `response` stay until then.
  virtual void Answer(const tensorflow::RecvTensorRequest& request, bool is_dead,
                      const tensorflow::Tensor& tensor, bool require_ack,
                      ::grpc::ByteBuffer* response, tensorflow::StatusCallback done);
  // There is no tensor for this request: it is answered with an error. Also after an Answer that
  // ended in one.
  virtual void Refuse(const tensorflow::RecvTensorRequest&) {}

  // Whether Answer may take long for this tensor's bytes, which memcpy could copy: it copies them,
  // or registers them with a device.
  virtual bool MayTakeLong(const tensorflow::Tensor& tensor) const;

  // Writes into the response to a RecvBuf request how the peer gets the bytes of `tensor`. `sent`
  // is called once, when the buffer may change: with OK where it was copied, or the receiver has it
  // or has let it go, and with an error where it is known that the bytes are lost: who waits for
  // `sent` must not go on as if all were well. On any thread, also before this returns; it must not
  // block. false: `sent` is not called, and the request is to be answered with the bytes, or with
  // `status` where that is an error: InvalidArgument for too many bytes.
  // `sent` may be empty: nobody waits for it, since the request is one that was answered before.
  virtual bool OfferBuffer(const tensorflow::RecvBufRequest& request,
                           const tensorflow::Tensor& tensor, tensorflow::StatusCallback sent,
                           tensorflow::RecvBufResponse* response, tensorflow::Status* status);
};

// Whether a tensor for this device, or of this RecvBuf, goes into memory that this process can
// write. To others TensorFlow itself copies the bytes of a response.
bool IsHostMemory(tensorflow::DeviceBase* device);
bool IsHostMemory(const tensorflow::RecvBufRequest& request);

// Between TensorFlow's statuses and ours, which have the same codes.
tensorflow::Status ToTensorFlow(const Status& status);
Status FromTensorFlow(const tensorflow::Status& status);

// Where the bytes of a tensor go whose response says its type and shape alone: the parser made it,
// without contents.
struct TensorTarget {
  uint8_t* into = nullptr;
  tensorflow::Tensor tensor;  // owns it
};
// kInternal: the peer has sent `size` bytes for a tensor of another size, or of elements that lie
// elsewhere; kResourceExhausted: there was no memory for it.
StatusOr<TensorTarget> TargetOf(const tensorflow::TensorResponse& response, uint64_t size);
Status WrongSize(uint64_t sent, uint64_t fits);

// What failed while a tensor of `target` was brought in. ClusterCoordinator tells whose failure it
// was by this text, as gRPC's errors have it.
tensorflow::Status OfTransfer(const Status& status, const std::string& target);

// Takes `Message`, which has a kType and an Encode, as a request's or response's options.
template <typename Message>
void Pack(const Message& message, google::protobuf::Any* into) {
  into->set_type_url(Message::kType);
  into->set_value(Encode(message));
}

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_CHANNEL_H_
