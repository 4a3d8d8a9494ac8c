// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_TRANSFER_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_TRANSFER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "grpcpp/support/byte_buffer.h"
#include "tensorflow/core/distributed_runtime/call_options.h"
#include "tensorflow/core/distributed_runtime/tensor_coding.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/lib/core/threadpool.h"
#include "tensorflow/core/platform/status.h"
#include "tensorflow/core/protobuf/worker.pb.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/protocol/landing.h"

// Rendezvous for tensors: RecvTensor and RecvBuf carry a descriptor, and the bytes go straight from
// the sender's tensor into the receiver's.
//
//   receiver  asks: its node and a ticket, in the request's transport_options
//   sender    offers: where the tensor lies, in the response's transport_options; or answers with
//             the bytes, as stock TensorFlow does, where that is cheaper
//   receiver  copies out of the sender's memory, or asks for chunks (RecvTensor calls whose
//             response is the bytes); then releases the ticket
//
// A peer that does not know these options ignores them and answers with the bytes.
namespace ar_grpc {

// --- the sender's side ---

// Writes the response to a RecvTensor request: an offer, or the bytes. InvalidArgument for a tensor
// that is too large for one message and cannot be offered to this peer.
tensorflow::Status EncodeTensor(const tensorflow::RecvTensorRequest& request, bool is_dead,
                                const tensorflow::Tensor& tensor, bool require_ack,
                                ::grpc::ByteBuffer* response);

// Whether `request` asks for a chunk of an offered tensor or releases it. Then `status` is the
// outcome and `response` the chunk's bytes: no protobuf, for the receiver of this file alone.
bool ServeChunk(const tensorflow::RecvTensorRequest& request, ::grpc::ByteBuffer* response,
                tensorflow::Status* status);

// Writes an offer of `tensor` into the response to a RecvBuf request; `sent` is called once, when
// the buffer may change because the receiver has it or has gone, on any thread, and must not block.
// false: it is to be answered with the bytes, and `sent` is not called; `status` is InvalidArgument
// where these are too many. Without `sent` nothing is offered.
bool OfferBuffer(const tensorflow::RecvBufRequest& request, const tensorflow::Tensor& tensor,
                 std::function<void()> sent, tensorflow::RecvBufResponse* response,
                 tensorflow::Status* status);

// --- the receiver's side ---

// How GrpcRemoteWorker calls its peer.
struct Caller {
  // Bytes that a chunk's response is copied to, as long as `landing` lets it.
  struct Chunk {
    uint8_t* into = nullptr;
    uint64_t size = 0;
    protocol::Landing* landing = nullptr;
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
bool ParseChunk(::grpc::ByteBuffer* source, Caller::Chunk* chunk);

// The calls for the chunks of one tensor, to be cancelled together. Thread-safe.
class Cancellable {
 public:
  // The options of a new call; nullptr when no more is to be begun.
  std::shared_ptr<tensorflow::CallOptions> Begin();
  void End(const std::shared_ptr<tensorflow::CallOptions>& call);
  void Cancel();
  bool cancelled();

 private:
  std::mutex mu_;
  bool cancelled_ = false;
  std::set<std::shared_ptr<tensorflow::CallOptions>> running_;
};

// One transfer, from the request to the last byte: Ask, Begin, the call, Finish. A cancel by the
// options that Begin was given reaches whichever part of it is under way, and when it returns the
// destination is not written to any more: a collective whose time is up frees it without waiting
// for the transfer (BaseCollectiveExecutor).
class Receipt : public std::enable_shared_from_this<Receipt> {
 public:
  // nullptr when nothing is to be asked for: no peer speaks AR-gRPC, or the tensor goes to a
  // device.
  static std::shared_ptr<Receipt> ForTensor(tensorflow::DeviceBase* device,
                                            std::shared_ptr<const Caller> caller);
  static std::shared_ptr<Receipt> ForBuffer(std::shared_ptr<const Caller> caller);

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
  explicit Receipt(std::shared_ptr<const Caller> caller);

  // Where the bytes go, and what ends with them.
  struct Target {
    uint8_t* into;
    uint64_t size;
    tensorflow::StatusCallback done;
  };

  // Brings in what was offered.
  void Fetch(const std::string& offer, Target target);
  // By calls; `late`: as the memory could not be read, because the peer may have gone.
  void FetchChunks(Target target, bool late);
  // Nothing of this is used after it but by who holds it.
  void End(const tensorflow::Status& status, const tensorflow::StatusCallback& done);
  void Cancel();
  // The call failed: whatever was or will be offered under the ticket is not wanted.
  void GiveUp() const;
  void ReleaseByCall() const;
  tensorflow::Status Annotated(const Status& status) const;

  const std::shared_ptr<const Caller> caller_;
  const uint64_t ticket_;
  // The caller's; nullptr: nobody cancels.
  tensorflow::CallOptions* options_ = nullptr;
  // The call's own, so that its end does not end what the caller's cancel.
  tensorflow::CallOptions call_;
  Cancellable chunks_;
  protocol::Landing landing_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_TENSOR_TRANSFER_H_
