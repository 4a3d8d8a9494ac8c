// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_MPI_TENSOR_CHANNEL_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_MPI_TENSOR_CHANNEL_H_

#include <memory>

#include "google/protobuf/any.pb.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/mpi/channel.h"
#include "third_party/ar_grpc/mpi/messages.h"
#include "third_party/ar_grpc/tensorflow/over_grpc.h"
#include "third_party/ar_grpc/tensorflow/protocol_names.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {

// Tensors by MPI messages: the request for a tensor says who asks and under which tag, the response
// that it is being sent. All bytes of tensors that memcpy could copy, between memory of hosts, go
// that way; dead tensors, empty ones, strings, variants and resources go in the response. There is
// no other way for the former: what MPI cannot bring is an error of the step.
//
// The receiver's side, and how two servers introduce each other, is in mpi_tensor_peer.h.
class MpiTensorChannel final : public TensorChannel {
 public:
  // `channel` is the process's (mpi::Channel::Get).
  explicit MpiTensorChannel(mpi::Channel* channel);
  ~MpiTensorChannel() override;

  std::shared_ptr<TensorPeer> NewPeer(std::shared_ptr<const TensorCaller> caller) override;
  // Hello, watch and bye.
  bool ServeOwnCall(tensorflow::CallOptions* options, const tensorflow::RecvTensorRequest& request,
                    ::grpc::ByteBuffer* response, const tensorflow::StatusCallback& done) override;
  tensorflow::Status Encode(const tensorflow::RecvTensorRequest& request, bool is_dead,
                            const tensorflow::Tensor& tensor, bool require_ack,
                            ::grpc::ByteBuffer* response) override;
  bool OfferBuffer(const tensorflow::RecvBufRequest& request, const tensorflow::Tensor& tensor,
                   tensorflow::StatusCallback sent, tensorflow::RecvBufResponse* response,
                   tensorflow::Status* status) override;

 private:
  class Watches;

  // Begins to send `tensor` to who asks by `options`; `sent`, if any, runs once, when it may
  // change. kOk: the peer gets `answer`, and if MPI fails later its watches end, and `sent` gets
  // the error, which is kUnavailable and names the rank. Else `sent` does not run.
  Status Send(const google::protobuf::Any& options, const tensorflow::Tensor& tensor,
              mpi::Done sent, mpi::Sent* answer);

  mpi::Channel* const channel_;
  // Outlives this where a watch's end is under way.
  const std::shared_ptr<Watches> watches_;
  OverGrpcNotice notice_{kMpiProtocol};
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_MPI_TENSOR_CHANNEL_H_
