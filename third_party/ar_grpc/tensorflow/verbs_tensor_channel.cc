// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/verbs_tensor_channel.h"

#include <atomic>
#include <string>
#include <utility>
#include <variant>

#include "grpcpp/support/slice.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_tensor_coding.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/env.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"
#include "third_party/ar_grpc/tensorflow/run_later.h"
#include "third_party/ar_grpc/tensorflow/verbs_tensor_peer.h"
#include "third_party/ar_grpc/verbs/messages.h"

namespace ar_grpc {
namespace {

using tensorflow::Tensor;

// Whether its bytes are what RDMA brings.
bool GoesByVerbs(const Tensor& tensor) {
  return tensorflow::DataTypeCanUseMemcpy(tensor.dtype()) && tensor.TotalBytes() > 0;
}

// What the sender says comes on the reactor, which must not wait for gRPC's locks.
void DoneLater(const tensorflow::StatusCallback& done, const Status& status) {
  RunLater([done, status] { done(ToTensorFlow(status)); });
}

}  // namespace

std::shared_ptr<TensorPeer> VerbsTensorChannel::NewPeer(
    std::shared_ptr<const TensorCaller> caller) {
  return NewVerbsTensorPeer(context_, std::move(caller));
}

bool VerbsTensorChannel::ServeOwnCall(tensorflow::CallOptions*,
                                      const tensorflow::RecvTensorRequest& request,
                                      ::grpc::ByteBuffer* response,
                                      const tensorflow::StatusCallback& done) {
  const std::string& type = request.transport_options().type_url();
  const std::string& value = request.transport_options().value();
  if (type == verbs::Introduce::kType) {
    const StatusOr<verbs::Introduce> introduce = verbs::DecodeIntroduce(value);
    if (!introduce.ok()) {
      done(ToTensorFlow(introduce.status()));
      return true;
    }
    sender_->Introduce(*introduce, [response, done](const StatusOr<verbs::Introduced>& introduced) {
      if (introduced.ok()) {
        ::grpc::Slice slice(verbs::Encode(*introduced));
        ::grpc::ByteBuffer bytes(&slice, 1);
        response->Swap(&bytes);
      }
      DoneLater(done, introduced.status());
    });
    return true;
  }
  if (type == verbs::Fetch::kType) {
    const StatusOr<verbs::Fetch> fetch = verbs::DecodeFetch(value);
    if (!fetch.ok()) {
      done(ToTensorFlow(fetch.status()));
      return true;
    }
    // Not in this thread, which polls: what is held may have to be registered.
    RunLater([sender = sender_, fetch = *fetch, done] {
      sender->Serve(fetch, [done](const Status& status) { DoneLater(done, status); });
    });
    return true;
  }
  if (type == verbs::Drop::kType) {
    const StatusOr<verbs::Drop> drop = verbs::DecodeDrop(value);
    done(ToTensorFlow(drop.ok() ? sender_->Drop(*drop) : drop.status()));
    return true;
  }
  return false;
}

void VerbsTensorChannel::Answer(const tensorflow::RecvTensorRequest& request, bool is_dead,
                                const Tensor& tensor, bool require_ack,
                                ::grpc::ByteBuffer* response, tensorflow::StatusCallback done) {
  const google::protobuf::Any& options = request.transport_options();
  if (is_dead || !GoesByVerbs(tensor) || options.type_url() != verbs::Ask::kType) {
    Refuse(request);
    return done(Encode(request, is_dead, tensor, require_ack, response));
  }
  const StatusOr<verbs::Ask> ask = verbs::DecodeAsk(options.value());
  if (!ask.ok()) return done(ToTensorFlow(ask.status()));
  const tensorflow::StringPiece bytes = tensor.tensor_data();
  verbs::Sender::Source source{bytes.data(), bytes.size(), std::make_shared<Tensor>(tensor)};
  tensorflow::RecvTensorResponse message;
  message.mutable_tensor()->set_dtype(tensor.dtype());
  tensor.shape().AsProto(message.mutable_tensor()->mutable_tensor_shape());
  message.set_require_ack(require_ack);
  message.set_send_start_micros(tensorflow::Env::Default()->NowMicros());
  sender_->Answer(*ask, std::move(source),
                  [message = std::move(message), response, done = std::move(done)](
                      const StatusOr<std::variant<verbs::Written, verbs::Held>>& answer) mutable {
                    if (!answer.ok()) return DoneLater(done, answer.status());
                    std::visit(
                        [&](const auto& one) { Pack(one, message.mutable_transport_options()); },
                        *answer);
                    tensorflow::grpc::EncodeRecvTensorResponseToByteBuffer(message, response);
                    DoneLater(done, Status());
                  });
}

void VerbsTensorChannel::Refuse(const tensorflow::RecvTensorRequest& request) {
  if (request.transport_options().type_url() != verbs::Ask::kType) return;
  const StatusOr<verbs::Ask> ask = verbs::DecodeAsk(request.transport_options().value());
  if (ask.ok()) sender_->Refuse(*ask);
}

// A WRITE registers a source that is not, for itself alone.
bool VerbsTensorChannel::MayTakeLong(const Tensor& tensor) const {
  const CpuArena* const arena = in_arena_ ? CpuArena::Get() : nullptr;
  const tensorflow::StringPiece bytes = tensor.tensor_data();
  return arena == nullptr || !arena->exports()->Registered(context_, bytes.data(), bytes.size());
}

bool VerbsTensorChannel::OfferBuffer(const tensorflow::RecvBufRequest& request,
                                     const Tensor& tensor, tensorflow::StatusCallback sent,
                                     tensorflow::RecvBufResponse* response,
                                     tensorflow::Status* status) {
  const google::protobuf::Any& options = request.transport_options();
  // Without `sent`, too: what the first request's answer holds would be held until the link ends.
  if (!GoesByVerbs(tensor) || options.type_url() != verbs::Ask::kType) {
    if (GoesByVerbs(tensor) && IsHostMemory(request)) notice_.SentToOther(request);
    return TensorChannel::OfferBuffer(request, tensor, nullptr, response, status);
  }
  const StatusOr<verbs::Ask> ask = verbs::DecodeAsk(options.value());
  if (!ask.ok()) {
    *status = ToTensorFlow(ask.status());
    return false;
  }
  // Whoever lets it go last tells that the buffer was sent, unless it was never held.
  struct HeldBuffer {
    Tensor tensor;
    tensorflow::StatusCallback sent;
    std::atomic<bool> held{false};
    ~HeldBuffer() {
      if (held && sent) sent(tensorflow::OkStatus());
    }
  };
  const auto buffer = std::make_shared<HeldBuffer>();
  buffer->tensor = tensor;
  buffer->sent = std::move(sent);
  const tensorflow::StringPiece bytes = tensor.tensor_data();
  const StatusOr<verbs::Held> held = sender_->Hold(*ask, {bytes.data(), bytes.size(), buffer});
  buffer->held = held.ok();
  *status = ToTensorFlow(held.status());
  if (!held.ok()) return false;
  Pack(*held, response->mutable_transport_options());
  return true;
}

}  // namespace ar_grpc
