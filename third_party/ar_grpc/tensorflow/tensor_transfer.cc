// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/tensor_transfer.h"

#include <cstring>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/slice.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_tensor_coding.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/device_name_utils.h"
#include "third_party/ar_grpc/protocol/cost_model.h"
#include "third_party/ar_grpc/protocol/rendezvous_messages.h"
#include "third_party/ar_grpc/protocol/sender.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"

namespace ar_grpc {
namespace {

using protocol::Link;
using protocol::Node;
using protocol::Receiver;
using protocol::Sender;
using tensorflow::Tensor;

tensorflow::Status ToTensorFlow(const Status& status) {
  if (status.ok()) return tensorflow::OkStatus();
  return tensorflow::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

Status FromTensorFlow(const tensorflow::Status& status) {
  if (status.ok()) return OkStatus();
  return Status(static_cast<StatusCode>(status.code()), std::string(status.message()));
}

template <typename Message>
void Pack(const Message& message, google::protobuf::Any* into) {
  into->set_type_url(Message::kType);
  into->set_value(protocol::Encode(message));
}

// --- the sender's side ---

// nullptr where the arena is full or there is none.
std::shared_ptr<uint8_t> FromArena(uint64_t size) {
  CpuArena* const arena = CpuArena::Get();
  return arena == nullptr ? nullptr : arena->AllocateShared(size);
}

Sender SenderOf(const std::shared_ptr<Node>& node) {
  // Called within the Sender's call, which holds the node. Every node of runtime.h has a selector.
  return Sender(node, FromArena, [from = node.get()](const Link* link, const auto& situation) {
    return from->selector()->Choose(link == nullptr ? "tcp" : link->fabric(), situation);
  });
}

// Offers `tensor` to who asks in `options`, if that is how it travels best.
std::optional<protocol::Offer> TryOffer(const std::shared_ptr<Node>& node,
                                        const google::protobuf::Any& options, const Tensor& tensor,
                                        std::function<void()> released) {
  if (node == nullptr || options.type_url() != protocol::Ask::kType) return std::nullopt;
  const StatusOr<protocol::Ask> ask = protocol::DecodeAsk(options.value());
  if (!ask.ok()) return std::nullopt;
  protocol::SourceBuffer source;
  const tensorflow::StringPiece bytes = tensor.tensor_data();
  source.data = reinterpret_cast<const uint8_t*>(bytes.data());
  source.size = bytes.size();
  source.keep = std::make_shared<Tensor>(tensor);
  return SenderOf(node).TryOffer(*ask, std::move(source), std::move(released));
}

tensorflow::Status TooLarge(const Tensor& tensor) {
  return tensorflow::errors::InvalidArgument(
      "a tensor of ", tensor.TotalBytes(), " bytes, shape ", tensor.shape().DebugString(),
      ", does not fit into one message of 2 GiB, and the peer cannot fetch it in parts: run the "
      "peer with grpc+ar, too, or split the tensor");
}

// --- the receiver's side ---

// A Caller as the protocol has it.
class Calls final : public protocol::ChunkCaller {
 public:
  explicit Calls(std::shared_ptr<const Caller> caller) : caller_(std::move(caller)) {}

  std::function<void()> Start(const protocol::ChunkRequest& request, Landing landing,
                              int64_t timeout_ms, std::function<void(Status)> done) override {
    tensorflow::RecvTensorRequest message;
    Pack(request, message.mutable_transport_options());
    auto chunk = std::make_shared<Caller::Chunk>(
        Caller::Chunk{landing.into, landing.size, std::move(landing.gate)});
    auto options = std::make_shared<tensorflow::CallOptions>();
    if (timeout_ms > 0) options->SetTimeout(timeout_ms);
    caller_->call(options.get(), message, chunk.get(),
                  [chunk, options, done = std::move(done)](const tensorflow::Status& status) {
                    done(FromTensorFlow(status));
                  });
    return [options] { options->StartCancel(); };
  }

  void Release(const protocol::ChunkRequest& request) override {
    tensorflow::RecvTensorRequest message;
    Pack(request, message.mutable_transport_options());
    auto nothing = std::make_shared<Caller::Chunk>();
    caller_->call(nullptr, message, nothing.get(), [nothing](const tensorflow::Status&) {});
  }

 private:
  const std::shared_ptr<const Caller> caller_;
};

std::shared_ptr<Receiver> NewReceiver(const std::shared_ptr<const Caller>& caller) {
  Receiver::Options options;
  options.node = caller->node;
  options.caller = std::make_shared<Calls>(caller);
  options.task = caller->target;
  // Asked once, as it is a system call.
  static const int cores = tensorflow::port::MaxParallelism();
  options.most_copiers = cores;
  if (tensorflow::thread::ThreadPool* const pool = caller->threadpool) {
    options.run_in_pool = [pool](std::function<void()> task) {
      pool->Schedule(std::move(task));
      return true;
    };
  }
  options.allocate = [](uint64_t size) {
    if (std::shared_ptr<uint8_t> memory = FromArena(size)) return memory;
    return std::shared_ptr<uint8_t>(new (std::nothrow) uint8_t[size],
                                    std::default_delete<uint8_t[]>());
  };
  return Receiver::Create(std::move(options));
}

}  // namespace

// --- the sender's side ---

tensorflow::Status EncodeTensor(const std::shared_ptr<Node>& node,
                                const tensorflow::RecvTensorRequest& request, bool is_dead,
                                const Tensor& tensor, bool require_ack,
                                ::grpc::ByteBuffer* response) {
  if (!is_dead && tensorflow::DataTypeCanUseMemcpy(tensor.dtype())) {
    if (const auto offer = TryOffer(node, request.transport_options(), tensor, nullptr)) {
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
  if (static_cast<uint64_t>(tensor.TotalBytes()) > protocol::kEagerLimit) return TooLarge(tensor);
  tensorflow::grpc::EncodeTensorToByteBuffer(is_dead, tensor, require_ack, response);
  return tensorflow::OkStatus();
}

bool ServeChunk(const std::shared_ptr<Node>& node, const tensorflow::RecvTensorRequest& request,
                ::grpc::ByteBuffer* response, tensorflow::Status* status) {
  if (node == nullptr || request.transport_options().type_url() != protocol::ChunkRequest::kType) {
    return false;
  }
  *status = tensorflow::OkStatus();
  const auto asked = protocol::DecodeChunkRequest(request.transport_options().value());
  if (!asked.ok()) {
    *status = ToTensorFlow(asked.status());
    return true;
  }
  StatusOr<Sender::Piece> piece = SenderOf(node).ServeChunk(*asked);
  if (!piece.ok()) {
    *status = ToTensorFlow(piece.status());
    return true;
  }
  if (piece->length == 0) return true;
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
  return true;
}

bool OfferBuffer(const std::shared_ptr<Node>& node, const tensorflow::RecvBufRequest& request,
                 const Tensor& tensor, std::function<void()> sent,
                 tensorflow::RecvBufResponse* response, tensorflow::Status* status) {
  *status = tensorflow::OkStatus();
  if (sent != nullptr) {
    if (const auto offer = TryOffer(node, request.transport_options(), tensor, std::move(sent))) {
      Pack(*offer, response->mutable_transport_options());
      return true;
    }
  }
  if (static_cast<uint64_t>(tensor.TotalBytes()) > protocol::kEagerLimit) {
    *status = TooLarge(tensor);
  }
  return false;
}

// --- the receiver's side ---

bool ParseChunk(::grpc::ByteBuffer* source, Caller::Chunk* chunk) {
  if (source->Length() != chunk->size) return false;
  if (chunk->size == 0) return true;
  std::vector<::grpc::Slice> slices;
  if (!source->Dump(&slices).ok() || !chunk->gate->BeginWrite()) return false;
  uint8_t* into = chunk->into;
  for (const ::grpc::Slice& slice : slices) {
    std::memcpy(into, slice.begin(), slice.size());
    into += slice.size();
  }
  chunk->gate->EndWrite();
  return true;
}

TensorReceive::TensorReceive(std::shared_ptr<const Caller> caller)
    : caller_(std::move(caller)), receiver_(NewReceiver(caller_)) {}

std::shared_ptr<TensorReceive> TensorReceive::ForTensor(tensorflow::DeviceBase* device,
                                                        std::shared_ptr<const Caller> caller) {
  if (caller->node == nullptr || !caller->node->HasLinks()) return nullptr;
  // Towards any other device, also one without accelerator info as XLA's, the bytes go through
  // TensorFlow's own copy.
  if (device == nullptr || device->tensorflow_accelerator_device_info() != nullptr ||
      device->attributes().device_type() != tensorflow::DEVICE_CPU) {
    return nullptr;
  }
  return std::shared_ptr<TensorReceive>(new TensorReceive(std::move(caller)));
}

std::shared_ptr<TensorReceive> TensorReceive::ForBuffer(const tensorflow::RecvBufRequest& request,
                                                        std::shared_ptr<const Caller> caller) {
  if (caller->node == nullptr || !caller->node->HasLinks()) return nullptr;
  // buf_ptr is where the tensor lies, on whatever device; TensorFlow itself copies to others.
  tensorflow::DeviceNameUtils::ParsedName device;
  if (!tensorflow::DeviceNameUtils::ParseFullName(request.dst_device(), &device) ||
      device.type != tensorflow::DEVICE_CPU) {
    return nullptr;
  }
  return std::shared_ptr<TensorReceive>(new TensorReceive(std::move(caller)));
}

void TensorReceive::Ask(tensorflow::RecvTensorRequest* request) const {
  Pack(receiver_->ask(), request->mutable_transport_options());
}

void TensorReceive::Ask(tensorflow::RecvBufRequest* request) const {
  Pack(receiver_->ask(), request->mutable_transport_options());
}

tensorflow::CallOptions* TensorReceive::Begin(tensorflow::CallOptions* options) {
  if (options == nullptr) return nullptr;
  options_ = options;
  call_.SetTimeout(options->GetTimeout());
  options->SetCancelCallback([self = shared_from_this()] { self->Cancel(); });
  return &call_;
}

void TensorReceive::Cancel() {
  // In this order: what the call's end starts must find that nothing more is to be begun.
  receiver_->Cancel();
  call_.StartCancel();
}

void TensorReceive::End(const tensorflow::Status& status, const tensorflow::StatusCallback& done) {
  // Waits for a cancel under way.
  if (options_ != nullptr) options_->ClearCancelCallback();
  done(status);
}

void TensorReceive::GiveUp(const tensorflow::Status& status,
                           const tensorflow::StatusCallback& done) {
  receiver_->GiveUp();
  End(status, done);
}

void TensorReceive::Finish(const tensorflow::Status& status, tensorflow::TensorResponse* response,
                           tensorflow::StatusCallback done) {
  if (!status.ok()) return GiveUp(status, done);
  const google::protobuf::Any& any = response->metadata().transport_options();
  if (any.type_url() != protocol::Offer::kType) {
    // So marked, it may answer another try of a call that has got an offer.
    return response->metadata().require_ack() ? GiveUp(status, done) : End(status, done);
  }
  const Tensor& tensor = response->tensor();
  if (!tensorflow::DataTypeCanUseMemcpy(tensor.dtype())) {
    return GiveUp(tensorflow::errors::Internal(
                      caller_->target, " offered the memory of a tensor of type ",
                      tensorflow::DataTypeString(tensor.dtype()), ", whose elements lie elsewhere"),
                  done);
  }
  // The parser made the tensor by the response's type and shape, without contents.
  if (!tensor.IsInitialized()) {
    return GiveUp(
        tensorflow::errors::ResourceExhausted(
            "OOM when allocating the tensor that ", caller_->target, " sends: shape ",
            tensor.shape().DebugString(), " of ", tensorflow::DataTypeString(tensor.dtype()), ", ",
            static_cast<uint64_t>(tensor.shape().num_elements()) *
                tensorflow::DataTypeSize(tensor.dtype()),
            " bytes"),
        done);
  }
  protocol::TargetBuffer target;
  const tensorflow::StringPiece into = tensor.tensor_data();
  target.into = reinterpret_cast<uint8_t*>(const_cast<char*>(into.data()));
  target.size = into.size();
  target.keep = std::make_shared<Tensor>(tensor);
  Fetch(any.value(), std::move(target), std::move(done));
}

void TensorReceive::Finish(const tensorflow::Status& status,
                           const tensorflow::RecvBufRequest& request,
                           tensorflow::RecvBufResponse* response, tensorflow::StatusCallback done) {
  if (!status.ok()) return GiveUp(status, done);
  if (response->transport_options().type_url() != protocol::Offer::kType) {
    return response->require_ack() ? GiveUp(status, done) : End(status, done);
  }
  const std::string offer = response->transport_options().value();
  // Without options the caller takes the bytes to be where buf_ptr says.
  response->clear_transport_options();
  protocol::TargetBuffer target;
  target.into = reinterpret_cast<uint8_t*>(request.buf_ptr());
  target.size = static_cast<uint64_t>(request.num_bytes());
  Fetch(offer, std::move(target), std::move(done));
}

void TensorReceive::Fetch(const std::string& bytes, protocol::TargetBuffer target,
                          tensorflow::StatusCallback done) {
  const StatusOr<protocol::Offer> offer = protocol::DecodeOffer(bytes);
  if (!offer.ok()) {
    return GiveUp(
        Annotated(Status(StatusCode::kInternal, caller_->target + ": " + offer.status().message())),
        done);
  }
  receiver_->Start(
      *offer, std::move(target), [self = shared_from_this(), done](const Status& status) {
        self->End(status.ok() ? tensorflow::OkStatus() : self->Annotated(status), done);
      });
}

tensorflow::Status TensorReceive::Annotated(const Status& status) const {
  // ClusterCoordinator tells whose failure it was by this text, as gRPC's errors have it.
  return tensorflow::Status(
      static_cast<absl::StatusCode>(status.code()),
      absl::StrCat(status.message(), "\nAdditional GRPC error information from remote target ",
                   caller_->target, " while calling RecvTensor"));
}

}  // namespace ar_grpc
