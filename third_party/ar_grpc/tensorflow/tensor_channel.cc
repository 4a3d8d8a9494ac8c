// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/slice.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_tensor_coding.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/device_name_utils.h"
#include "third_party/ar_grpc/protocol/cost_model.h"
#include "third_party/ar_grpc/tensorflow/collective_buffer.h"
#include "third_party/ar_grpc/tensorflow/receive_call.h"

namespace ar_grpc {
namespace {

tensorflow::Status CheckSize(const tensorflow::Tensor& tensor) {
  if (static_cast<uint64_t>(tensor.TotalBytes()) <= protocol::kEagerLimit) {
    return tensorflow::OkStatus();
  }
  return tensorflow::errors::InvalidArgument(
      "a tensor of ", tensor.TotalBytes(), " bytes, shape ", tensor.shape().DebugString(),
      ", does not fit into one message of 2 GiB, and the peer cannot fetch it in parts: run the "
      "peer with grpc+ar, too, or split the tensor");
}

}  // namespace

bool ParseChunk(::grpc::ByteBuffer* source, TensorCaller::Chunk* chunk) {
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

void TensorPeer::ReceiveTensor(tensorflow::CallOptions* options,
                               const tensorflow::RecvTensorRequest& request,
                               tensorflow::TensorResponse*,
                               Call<tensorflow::RecvTensorRequest> call,
                               tensorflow::StatusCallback done) {
  call(options, request, std::move(done));
}

void TensorPeer::ReceiveBuffer(tensorflow::CallOptions* options,
                               std::shared_ptr<tensorflow::RecvBufRequest> request,
                               tensorflow::RecvBufResponse* response,
                               Call<tensorflow::RecvBufRequest> call,
                               tensorflow::StatusCallback done) {
  const std::shared_ptr<protocol::WriteGate> gate = ScopedBufferGate::Current();
  const auto waiter = std::make_shared<Waiter>(options, std::move(done));
  waiter->OnCancel([waiter] { waiter->CancelCall(); });
  call(
      waiter->call_options(), *request,
      [request, response, gate, waiter](const tensorflow::Status& status) {
        waiter->End(status.ok() ? ToTensorFlow(TakeBytes(*request, gate.get(), response)) : status);
      });
  // A cancel that came before the call could be cancelled.
  if (gate->closed()) waiter->CancelCall();
}

const std::shared_ptr<TensorChannel>& TensorChannel::InResponses() {
  // Never destroyed: workers may be made until the process ends.
  static const auto* const channel =
      new std::shared_ptr<TensorChannel>(std::make_shared<TensorChannel>());
  return *channel;
}

std::shared_ptr<TensorPeer> TensorChannel::NewPeer(std::shared_ptr<const TensorCaller>) {
  return std::make_shared<TensorPeer>();
}

bool TensorChannel::ServeOwnCall(tensorflow::CallOptions*, const tensorflow::RecvTensorRequest&,
                                 ::grpc::ByteBuffer*, const tensorflow::StatusCallback&) {
  return false;
}

tensorflow::Status TensorChannel::Encode(const tensorflow::RecvTensorRequest&, bool is_dead,
                                         const tensorflow::Tensor& tensor, bool require_ack,
                                         ::grpc::ByteBuffer* response) {
  TF_RETURN_IF_ERROR(CheckSize(tensor));
  tensorflow::grpc::EncodeTensorToByteBuffer(is_dead, tensor, require_ack, response);
  return tensorflow::OkStatus();
}

void TensorChannel::Answer(const tensorflow::RecvTensorRequest& request, bool is_dead,
                           const tensorflow::Tensor& tensor, bool require_ack,
                           ::grpc::ByteBuffer* response, tensorflow::StatusCallback done) {
  done(Encode(request, is_dead, tensor, require_ack, response));
}

bool TensorChannel::MayTakeLong(const tensorflow::Tensor&) const { return false; }

bool TensorChannel::OfferBuffer(const tensorflow::RecvBufRequest&, const tensorflow::Tensor& tensor,
                                tensorflow::StatusCallback, tensorflow::RecvBufResponse*,
                                tensorflow::Status* status) {
  *status = CheckSize(tensor);
  return false;
}

bool IsHostMemory(tensorflow::DeviceBase* device) {
  // A device without accelerator info may be one all the same, as XLA's are.
  return device != nullptr && device->tensorflow_accelerator_device_info() == nullptr &&
         device->attributes().device_type() == tensorflow::DEVICE_CPU;
}

bool IsHostMemory(const tensorflow::RecvBufRequest& request) {
  // For a device buf_ptr may be on it, or in host memory that TensorFlow copies to it.
  tensorflow::DeviceNameUtils::ParsedName device;
  return tensorflow::DeviceNameUtils::ParseFullName(request.dst_device(), &device) &&
         device.type == tensorflow::DEVICE_CPU;
}

tensorflow::Status ToTensorFlow(const Status& status) {
  if (status.ok()) return tensorflow::OkStatus();
  return tensorflow::Status(static_cast<absl::StatusCode>(status.code()), status.message());
}

Status FromTensorFlow(const tensorflow::Status& status) {
  if (status.ok()) return OkStatus();
  return Status(static_cast<StatusCode>(status.code()), std::string(status.message()));
}

StatusOr<TensorTarget> TargetOf(const tensorflow::TensorResponse& response, uint64_t size) {
  const tensorflow::Tensor& tensor = response.tensor();
  if (!tensorflow::DataTypeCanUseMemcpy(tensor.dtype())) {
    return Status(StatusCode::kInternal, "the peer sends bytes for a tensor of type " +
                                             tensorflow::DataTypeString(tensor.dtype()));
  }
  if (!tensor.IsInitialized()) {
    return Status(StatusCode::kResourceExhausted,
                  "OOM when allocating the tensor to receive: shape " +
                      tensor.shape().DebugString() + " of " +
                      tensorflow::DataTypeString(tensor.dtype()));
  }
  const tensorflow::StringPiece into = tensor.tensor_data();
  if (size != into.size()) return WrongSize(size, into.size());
  return TensorTarget{reinterpret_cast<uint8_t*>(const_cast<char*>(into.data())), tensor};
}

Status WrongSize(uint64_t sent, uint64_t fits) {
  return Status(StatusCode::kInternal,
                absl::StrCat("the peer sends ", sent, " bytes for a tensor of ", fits));
}

tensorflow::Status OfTransfer(const Status& status, const std::string& target) {
  if (status.ok()) return tensorflow::OkStatus();
  return tensorflow::Status(
      static_cast<absl::StatusCode>(status.code()),
      absl::StrCat(status.message(), "\nAdditional GRPC error information from remote target ",
                   target, " while calling RecvTensor"));
}

}  // namespace ar_grpc
