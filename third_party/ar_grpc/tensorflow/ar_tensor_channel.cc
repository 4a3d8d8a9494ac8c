// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/ar_tensor_channel.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "grpcpp/support/slice.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_tensor_coding.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/env.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/protocol/rendezvous_messages.h"
#include "third_party/ar_grpc/protocol/sender.h"
#include "third_party/ar_grpc/tensorflow/ar_tensor_peer.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"

namespace ar_grpc {
namespace {

using protocol::Link;
using protocol::Node;
using protocol::Sender;
using tensorflow::Tensor;

Sender SenderOf(const std::shared_ptr<Node>& node) {
  // Called within the Sender's call, which holds the node. Every node of runtime.h has a selector.
  return Sender(node, CpuArena::AllocateShared,
                [from = node.get()](const Link* link, const auto& situation) {
                  return link == nullptr
                             ? from->selector()->Choose(fabric::kTcp, /*far_us=*/0, situation)
                             : from->selector()->Choose(link->fabric(), link->far_us(), situation);
                });
}

// Offers `tensor` to who asks in `options`, if that is how it travels best.
std::optional<protocol::Offer> TryOffer(const std::shared_ptr<Node>& node,
                                        const google::protobuf::Any& options, const Tensor& tensor,
                                        std::function<void()> released) {
  if (options.type_url() != protocol::Ask::kType) return std::nullopt;
  const StatusOr<protocol::Ask> ask = protocol::DecodeAsk(options.value());
  if (!ask.ok()) return std::nullopt;
  protocol::SourceBuffer source;
  const tensorflow::StringPiece bytes = tensor.tensor_data();
  source.data = reinterpret_cast<const uint8_t*>(bytes.data());
  source.size = bytes.size();
  source.keep = std::make_shared<Tensor>(tensor);
  return SenderOf(node).TryOffer(*ask, std::move(source), std::move(released));
}

}  // namespace

std::shared_ptr<TensorPeer> ArTensorChannel::NewPeer(std::shared_ptr<const TensorCaller> caller) {
  return NewArTensorPeer(node_, std::move(caller));
}

bool ArTensorChannel::ServeOwnCall(tensorflow::CallOptions*,
                                   const tensorflow::RecvTensorRequest& request,
                                   ::grpc::ByteBuffer* response,
                                   const tensorflow::StatusCallback& done) {
  if (request.transport_options().type_url() != protocol::ChunkRequest::kType) return false;
  const auto asked = protocol::DecodeChunkRequest(request.transport_options().value());
  StatusOr<Sender::Piece> piece =
      asked.ok() ? SenderOf(node_).ServeChunk(*asked) : StatusOr<Sender::Piece>(asked.status());
  if (piece.ok() && piece->length > 0) {
    auto keep = std::make_unique<std::shared_ptr<const void>>(std::move(piece->keep));
    ::grpc::Slice slice(
        const_cast<uint8_t*>(piece->data), piece->length,
        [](void* kept) {
          std::unique_ptr<std::shared_ptr<const void>>(
              static_cast<std::shared_ptr<const void>*>(kept));
        },
        keep.release());
    ::grpc::ByteBuffer bytes(&slice, 1);
    response->Swap(&bytes);
  }
  done(ToTensorFlow(piece.status()));
  return true;
}

tensorflow::Status ArTensorChannel::Encode(const tensorflow::RecvTensorRequest& request,
                                           bool is_dead, const Tensor& tensor, bool require_ack,
                                           ::grpc::ByteBuffer* response) {
  if (!is_dead && tensorflow::DataTypeCanUseMemcpy(tensor.dtype())) {
    if (const auto offer = TryOffer(node_, request.transport_options(), tensor, nullptr)) {
      tensorflow::RecvTensorResponse message;
      message.mutable_tensor()->set_dtype(tensor.dtype());
      tensor.shape().AsProto(message.mutable_tensor()->mutable_tensor_shape());
      message.set_require_ack(require_ack);
      message.set_send_start_micros(tensorflow::Env::Default()->NowMicros());
      Pack(*offer, message.mutable_transport_options());
      tensorflow::grpc::EncodeRecvTensorResponseToByteBuffer(message, response);
      return tensorflow::OkStatus();
    }
  }
  return TensorChannel::Encode(request, is_dead, tensor, require_ack, response);
}

// A message refers to the tensor's bytes, and so does an offer; only one outside of the arena may
// have to be copied into it first (staged), for a peer that reads it there.
bool ArTensorChannel::MayTakeLong(const Tensor& tensor) const {
  const CpuArena* const arena = CpuArena::Get();
  return arena != nullptr && arena->PeersRead() &&
         !arena->Owns(tensor.tensor_data().data(), tensor.TotalBytes());
}

bool ArTensorChannel::OfferBuffer(const tensorflow::RecvBufRequest& request, const Tensor& tensor,
                                  tensorflow::StatusCallback sent,
                                  tensorflow::RecvBufResponse* response,
                                  tensorflow::Status* status) {
  *status = tensorflow::OkStatus();
  if (sent != nullptr) {
    // Whether the reader has read it all or has let it go, the sender is not told.
    auto released = [sent = std::move(sent)] { sent(tensorflow::OkStatus()); };
    if (const auto offer =
            TryOffer(node_, request.transport_options(), tensor, std::move(released))) {
      Pack(*offer, response->mutable_transport_options());
      return true;
    }
  }
  return TensorChannel::OfferBuffer(request, tensor, nullptr, response, status);
}

}  // namespace ar_grpc
