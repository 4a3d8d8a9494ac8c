// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_TENSOR_CHANNEL_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_TENSOR_CHANNEL_H_

#include <memory>
#include <utility>

#include "third_party/ar_grpc/protocol/node.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {

// Rendezvous for tensors: a request says who asks, the response where the tensor lies, and the
// bytes go straight from the sender's tensor into the receiver's. What is decided and who waits for
// what is in protocol/sender.h and protocol/receiver.h; here are only TensorFlow's and gRPC's
// types. The receiver's side is in ar_tensor_peer.h.
class ArTensorChannel final : public TensorChannel {
 public:
  // `node` is the server's.
  explicit ArTensorChannel(std::shared_ptr<protocol::Node> node) : node_(std::move(node)) {}

  std::shared_ptr<TensorPeer> NewPeer(std::shared_ptr<const TensorCaller> caller) override;
  // Those that ask for a chunk of an offered tensor, or release it.
  bool ServeOwnCall(tensorflow::CallOptions* options, const tensorflow::RecvTensorRequest& request,
                    ::grpc::ByteBuffer* response, const tensorflow::StatusCallback& done) override;
  tensorflow::Status Encode(const tensorflow::RecvTensorRequest& request, bool is_dead,
                            const tensorflow::Tensor& tensor, bool require_ack,
                            ::grpc::ByteBuffer* response) override;
  bool MayTakeLong(const tensorflow::Tensor& tensor) const override;
  bool OfferBuffer(const tensorflow::RecvBufRequest& request, const tensorflow::Tensor& tensor,
                   tensorflow::StatusCallback sent, tensorflow::RecvBufResponse* response,
                   tensorflow::Status* status) override;

 private:
  const std::shared_ptr<protocol::Node> node_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_AR_TENSOR_CHANNEL_H_
