// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_VERBS_TENSOR_CHANNEL_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_VERBS_TENSOR_CHANNEL_H_

#include <memory>

#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/tensorflow/over_grpc.h"
#include "third_party/ar_grpc/tensorflow/protocol_names.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"
#include "third_party/ar_grpc/verbs/sender.h"

namespace ar_grpc {

// Tensors by RDMA WRITE: the request for a tensor says where its bytes may be written, and is
// answered when they have been; a collective's buffer is always held until it is fetched, since its
// request is answered at once. All bytes of tensors that memcpy could copy, between memory of
// hosts, go that way; dead tensors, empty ones, strings, variants and resources go in the response.
// There is no other way for the former: what RDMA cannot bring is an error of the step.
//
// The receiver's side is in verbs_tensor_peer.h.
class VerbsTensorChannel final : public TensorChannel {
 public:
  // `context` writes and sends messages (fabric.h); `in_arena`: the arena is registered with it.
  VerbsTensorChannel(fabric::Context* context, bool in_arena)
      : context_(context), in_arena_(in_arena), sender_(std::make_shared<verbs::Sender>(context)) {}

  std::shared_ptr<TensorPeer> NewPeer(std::shared_ptr<const TensorCaller> caller) override;
  // Introductions, what is fetched and what is dropped.
  bool ServeOwnCall(tensorflow::CallOptions* options, const tensorflow::RecvTensorRequest& request,
                    ::grpc::ByteBuffer* response, const tensorflow::StatusCallback& done) override;
  void Answer(const tensorflow::RecvTensorRequest& request, bool is_dead,
              const tensorflow::Tensor& tensor, bool require_ack, ::grpc::ByteBuffer* response,
              tensorflow::StatusCallback done) override;
  void Refuse(const tensorflow::RecvTensorRequest& request) override;
  bool MayTakeLong(const tensorflow::Tensor& tensor) const override;
  bool OfferBuffer(const tensorflow::RecvBufRequest& request, const tensorflow::Tensor& tensor,
                   tensorflow::StatusCallback sent, tensorflow::RecvBufResponse* response,
                   tensorflow::Status* status) override;

 private:
  fabric::Context* const context_;
  const bool in_arena_;
  const std::shared_ptr<verbs::Sender> sender_;
  OverGrpcNotice notice_{kVerbsProtocol};
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_VERBS_TENSOR_CHANNEL_H_
