// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_TRANSFER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "grpcpp/support/byte_buffer.h"
#include "tensorflow/core/distributed_runtime/call_options.h"
#include "tensorflow/core/distributed_runtime/tensor_coding.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/lib/core/threadpool.h"
#include "tensorflow/core/platform/status.h"
#include "tensorflow/core/protobuf/worker.pb.h"
#include "third_party/ar_grpc/protocol/node.h"
#include "third_party/ar_grpc/protocol/receiver.h"
#include "third_party/ar_grpc/protocol/write_gate.h"

// Rendezvous for tensors: RecvTensor and RecvBuf carry a descriptor in transport_options, and the
// bytes go straight from the sender's tensor into the receiver's. What is decided and who waits for
// what is in protocol/sender.h and protocol/receiver.h; here are only TensorFlow's and gRPC's
// types.
//
// A peer that does not know these options ignores them and answers with the bytes.
namespace ar_grpc {

// --- the sender's side; `node` is the server's, nullptr where it does not speak AR-gRPC ---

// Writes the response to a RecvTensor request: an offer, or the bytes. InvalidArgument for a tensor
// that is too large for one message and cannot be offered to this peer.
tensorflow::Status EncodeTensor(const std::shared_ptr<protocol::Node>& node,
                                const tensorflow::RecvTensorRequest& request, bool is_dead,
                                const tensorflow::Tensor& tensor, bool require_ack,
                                ::grpc::ByteBuffer* response);

// Whether `request` asks for a chunk of an offered tensor or releases it. Then `status` is the
// outcome and `response` the chunk's bytes: no protobuf, for the receiver of this file alone.
bool ServeChunk(const std::shared_ptr<protocol::Node>& node,
                const tensorflow::RecvTensorRequest& request, ::grpc::ByteBuffer* response,
                tensorflow::Status* status);

// Writes an offer of `tensor` into the response to a RecvBuf request. `sent` is called once, when
// the buffer may change: it was copied to be offered, or the receiver has it, or that has gone. On
// any thread, also before this returns; it must not block. false: it is to be answered with the
// bytes, and `sent` is not called; `status` is InvalidArgument where these are too many. Without
// `sent` nothing is offered.
bool OfferBuffer(const std::shared_ptr<protocol::Node>& node,
                 const tensorflow::RecvBufRequest& request, const tensorflow::Tensor& tensor,
                 std::function<void()> sent, tensorflow::RecvBufResponse* response,
                 tensorflow::Status* status);

// --- the receiver's side ---

// How GrpcRemoteWorker calls its peer.
struct Caller {
  // Bytes that a chunk's response is copied to, as long as `gate` lets it.
  struct Chunk {
    uint8_t* into = nullptr;
    uint64_t size = 0;
    std::shared_ptr<protocol::WriteGate> gate;
  };
  // The channel's; nullptr: it does not speak AR-gRPC.
  std::shared_ptr<protocol::Node> node;
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
bool ParseChunk(::grpc::ByteBuffer* source, Caller::Chunk* chunk);

// One transfer, from the request to the last byte: Ask, Begin, the call, Finish. A cancel by the
// options that Begin was given reaches whichever part of it is under way, and when it returns a
// RecvBuf's destination is not written to any more: a collective whose time is up frees it without
// waiting for the transfer (BaseCollectiveExecutor).
class TensorReceive : public std::enable_shared_from_this<TensorReceive> {
 public:
  // nullptr when nothing is to be asked for: the channel does not speak AR-gRPC, no peer does, or
  // the bytes go to a device's memory, which this process cannot write.
  static std::shared_ptr<TensorReceive> ForTensor(tensorflow::DeviceBase* device,
                                                  std::shared_ptr<const Caller> caller);
  static std::shared_ptr<TensorReceive> ForBuffer(const tensorflow::RecvBufRequest& request,
                                                  std::shared_ptr<const Caller> caller);

  // Adds the question to a request.
  void Ask(tensorflow::RecvTensorRequest* request) const;
  void Ask(tensorflow::RecvBufRequest* request) const;

  // The options to make the call with, in place of the caller's `options`, which may be nullptr.
  tensorflow::CallOptions* Begin(tensorflow::CallOptions* options);

  // To be called with the call's outcome: brings in what was offered, then calls `done`, perhaps in
  // another thread.
  void Finish(const tensorflow::Status& status, tensorflow::TensorResponse* response,
              tensorflow::StatusCallback done);
  void Finish(const tensorflow::Status& status, const tensorflow::RecvBufRequest& request,
              tensorflow::RecvBufResponse* response, tensorflow::StatusCallback done);

 private:
  explicit TensorReceive(std::shared_ptr<const Caller> caller);

  // Brings in what was offered; `bytes` are the offer's.
  void Fetch(const std::string& bytes, protocol::TargetBuffer target,
             tensorflow::StatusCallback done);
  // Nothing was offered, or what was is not wanted.
  void GiveUp(const tensorflow::Status& status, const tensorflow::StatusCallback& done);
  // Nothing of this is used after it but by who holds it.
  void End(const tensorflow::Status& status, const tensorflow::StatusCallback& done);
  void Cancel();
  tensorflow::Status Annotated(const Status& status) const;

  const std::shared_ptr<const Caller> caller_;
  const std::shared_ptr<protocol::Receiver> receiver_;
  // The caller's; nullptr: nobody cancels.
  tensorflow::CallOptions* options_ = nullptr;
  // The call's own, so that its end does not end what the caller's cancel.
  tensorflow::CallOptions call_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_TRANSFER_H_
