// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/ar_tensor_peer.h"

#include <atomic>
#include <cstdint>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/errors.h"
#include "third_party/ar_grpc/base/limits.h"
#include "third_party/ar_grpc/protocol/receiver.h"
#include "third_party/ar_grpc/protocol/rendezvous_messages.h"
#include "third_party/ar_grpc/protocol/write_gate.h"
#include "third_party/ar_grpc/tensorflow/collective_buffer.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"

namespace ar_grpc {
namespace {

using protocol::Node;
using protocol::Receiver;
using tensorflow::Tensor;

// A TensorCaller as the protocol has it.
class Calls final : public protocol::ChunkCaller {
 public:
  explicit Calls(std::shared_ptr<const TensorCaller> caller) : caller_(std::move(caller)) {}

  std::function<void()> Start(const protocol::ChunkRequest& request, Target target,
                              int64_t timeout_ms, std::function<void(Status)> done) override {
    tensorflow::RecvTensorRequest message;
    Pack(request, message.mutable_transport_options());
    auto chunk = std::make_shared<TensorCaller::Chunk>(
        TensorCaller::Chunk{target.into, target.size, std::move(target.gate)});
    auto options = std::make_shared<tensorflow::CallOptions>();
    if (timeout_ms > 0) options->SetTimeout(timeout_ms);
    caller_->call(options.get(), message, chunk.get(),
                  [chunk, options, done = std::move(done)](const tensorflow::Status& status) {
                    done(FromTensorFlow(status));
                  });
    return [options] { options->StartCancel(); };
  }

  void Release(const protocol::ChunkRequest& request, std::function<void()> lost) override {
    tensorflow::RecvTensorRequest message;
    Pack(request, message.mutable_transport_options());
    auto nothing = std::make_shared<TensorCaller::Chunk>();
    caller_->call(nullptr, message, nothing.get(),
                  [nothing, lost = std::move(lost)](const tensorflow::Status& status) {
                    if (!status.ok()) lost();
                  });
  }

 private:
  const std::shared_ptr<const TensorCaller> caller_;
};

std::shared_ptr<Receiver> NewReceiver(const std::shared_ptr<Node>& node,
                                      const std::shared_ptr<const TensorCaller>& caller,
                                      std::shared_ptr<protocol::WriteGate> gate) {
  Receiver::Options options;
  options.sender_waits = gate != nullptr;
  options.gate = std::move(gate);
  options.node = node;
  options.caller = std::make_shared<Calls>(caller);
  options.task = caller->target;
  // Asked once: it reads files.
  static const int cores = UsableCores();
  options.most_copiers = cores;
  if (tensorflow::thread::ThreadPool* const pool = caller->threadpool) {
    options.run_in_pool = [pool](std::function<void()> task) {
      pool->Schedule(std::move(task));
      return true;
    };
  }
  options.allocate = [](uint64_t size) {
    if (std::shared_ptr<uint8_t> memory = CpuArena::AllocateShared(size)) return memory;
    return std::shared_ptr<uint8_t>(new (std::nothrow) uint8_t[size],
                                    std::default_delete<uint8_t[]>());
  };
  return Receiver::Create(std::move(options));
}

// One transfer, from the request to the last byte: Ask, Begin, the call, Finish. A cancel by the
// options that Begin was given reaches whichever part of it is under way.
class TensorReceive : public std::enable_shared_from_this<TensorReceive> {
 public:
  // `gate`: of a collective's buffer, else nullptr.
  TensorReceive(const std::shared_ptr<Node>& node, std::shared_ptr<const TensorCaller> caller,
                std::shared_ptr<protocol::WriteGate> gate)
      : caller_(std::move(caller)), receiver_(NewReceiver(node, caller_, std::move(gate))) {}

  // Adds the question to a request.
  template <typename Request>
  void Ask(Request* request) const {
    Pack(receiver_->ask(), request->mutable_transport_options());
  }

  // The options to make the call with, in place of the caller's `options`, which may be nullptr.
  tensorflow::CallOptions* Begin(tensorflow::CallOptions* options);
  // The call is made: cancels it where a cancel came before there was one to hear it.
  void Begun();
  void Cancel();

  // To be called with the call's outcome: brings in what was offered, then calls `done`, perhaps in
  // another thread.
  void Finish(const tensorflow::Status& status, tensorflow::TensorResponse* response,
              tensorflow::StatusCallback done);
  void Finish(const tensorflow::Status& status, const tensorflow::RecvBufRequest& request,
              protocol::WriteGate* gate, tensorflow::RecvBufResponse* response,
              tensorflow::StatusCallback done);

 private:
  // Brings in what was offered; `bytes` are the offer's.
  void Fetch(const std::string& bytes, protocol::TargetBuffer target,
             tensorflow::StatusCallback done);
  // Nothing was offered, or what was is not wanted.
  void GiveUp(const tensorflow::Status& status, const tensorflow::StatusCallback& done);
  // Nothing of this is used after it but by who holds it.
  void End(const tensorflow::Status& status, const tensorflow::StatusCallback& done);

  const std::shared_ptr<const TensorCaller> caller_;
  const std::shared_ptr<Receiver> receiver_;
  // The caller's; nullptr: nobody cancels.
  tensorflow::CallOptions* options_ = nullptr;
  // The call's own, so that its end does not end what the caller's cancel.
  tensorflow::CallOptions call_;
  std::atomic<bool> cancelled_{false};
};

tensorflow::CallOptions* TensorReceive::Begin(tensorflow::CallOptions* options) {
  if (options == nullptr) return nullptr;
  options_ = options;
  call_.SetTimeout(options->GetTimeout());
  options->SetCancelCallback([self = shared_from_this()] { self->Cancel(); });
  return &call_;
}

void TensorReceive::Begun() {
  if (cancelled_) call_.StartCancel();
}

void TensorReceive::Cancel() {
  cancelled_ = true;
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
                           const tensorflow::RecvBufRequest& request, protocol::WriteGate* gate,
                           tensorflow::RecvBufResponse* response, tensorflow::StatusCallback done) {
  if (!status.ok()) return GiveUp(status, done);
  if (response->transport_options().type_url() != protocol::Offer::kType) {
    const tensorflow::Status taken = ToTensorFlow(TakeBytes(request, gate, response));
    return response->require_ack() ? GiveUp(taken, done) : End(taken, done);
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
        OfTransfer(Status(StatusCode::kInternal, caller_->target + ": " + offer.status().message()),
                   caller_->target),
        done);
  }
  receiver_->Start(*offer, std::move(target),
                   [self = shared_from_this(), done](const Status& status) {
                     self->End(OfTransfer(status, self->caller_->target), done);
                   });
}

class ArTensorPeer final : public TensorPeer {
 public:
  ArTensorPeer(std::shared_ptr<Node> node, std::shared_ptr<const TensorCaller> caller)
      : node_(std::move(node)), caller_(std::move(caller)) {}

  void ReceiveTensor(tensorflow::CallOptions* options, const tensorflow::RecvTensorRequest& request,
                     tensorflow::TensorResponse* response, Call<tensorflow::RecvTensorRequest> call,
                     tensorflow::StatusCallback done) override {
    if (!node_->HasHadLinks() || !IsHostMemory(response->device())) {
      return call(options, request, std::move(done));
    }
    const auto receive = std::make_shared<TensorReceive>(node_, caller_, nullptr);
    tensorflow::RecvTensorRequest asking = request;
    receive->Ask(&asking);
    call(receive->Begin(options), asking,
         [receive, response, done = std::move(done)](const tensorflow::Status& status) {
           receive->Finish(status, response, done);
         });
    receive->Begun();
  }

  void ReceiveBuffer(tensorflow::CallOptions* options,
                     std::shared_ptr<tensorflow::RecvBufRequest> request,
                     tensorflow::RecvBufResponse* response, Call<tensorflow::RecvBufRequest> call,
                     tensorflow::StatusCallback done) override {
    if (!node_->HasHadLinks() || !IsHostMemory(*request)) {
      return TensorPeer::ReceiveBuffer(options, std::move(request), response, std::move(call),
                                       std::move(done));
    }
    const std::shared_ptr<protocol::WriteGate> gate = ScopedBufferGate::Current();
    const auto receive = std::make_shared<TensorReceive>(node_, caller_, gate);
    receive->Ask(request.get());
    tensorflow::CallOptions* const own = receive->Begin(options);
    // Only from here on is every cancel heard.
    if (gate->closed()) receive->Cancel();
    call(own, *request,
         [receive, request, gate, response,
          done = std::move(done)](const tensorflow::Status& status) {
           receive->Finish(status, *request, gate.get(), response, done);
         });
    receive->Begun();
  }

 private:
  const std::shared_ptr<Node> node_;
  const std::shared_ptr<const TensorCaller> caller_;
};

}  // namespace

std::shared_ptr<TensorPeer> NewArTensorPeer(std::shared_ptr<Node> node,
                                            std::shared_ptr<const TensorCaller> caller) {
  return std::make_shared<ArTensorPeer>(std::move(node), std::move(caller));
}

}  // namespace ar_grpc
