// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/mpi_tensor_peer.h"

#include <atomic>
#include <cstring>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/ar_grpc/mpi/messages.h"
#include "third_party/ar_grpc/protocol/write_gate.h"
#include "third_party/ar_grpc/tensorflow/mpi_introduction.h"
#include "third_party/ar_grpc/tensorflow/run_later.h"

namespace ar_grpc {
namespace {

using tensorflow::Tensor;

// Where a transfer's bytes go.
struct Target {
  uint8_t* into = nullptr;
  uint64_t size = 0;
  mpi::Keep keep;
};

// One transfer, from the introduction to the last byte. A cancel reaches whichever part of it is
// under way.
class MpiReceive : public std::enable_shared_from_this<MpiReceive> {
 public:
  MpiReceive(mpi::Channel* channel, std::shared_ptr<const TensorCaller> caller,
             tensorflow::CallOptions* options, tensorflow::StatusCallback done)
      : channel_(channel), caller_(std::move(caller)), options_(options), done_(std::move(done)) {}
  virtual ~MpiReceive() = default;

  // Nothing ends before it returns: who waits for the end may delete what makes the calls.
  void Start(std::shared_ptr<MpiIntroduction> introduction) {
    const auto self = shared_from_this();
    if (options_ != nullptr) {
      call_.SetTimeout(options_->GetTimeout());
      options_->SetCancelCallback([self] { self->Cancel(); });
    }
    introduction->WhenKnown([self](const StatusOr<int>& rank) { self->OnKnown(rank); });
    std::lock_guard<std::mutex> lock(mu_);
    started_ = true;
    if (!early_.has_value() && cancelled_ && !calling_) early_ = Cancelled();
    if (early_.has_value()) RunLater([self, status = *early_] { self->End(status); });
  }

 protected:
  // Makes the call, with the question.
  virtual void Call(const mpi::Ask& ask, tensorflow::StatusCallback done) = 0;
  // After it: what is being sent; none: the bytes have come with the response.
  virtual const google::protobuf::Any& Answer() const = 0;
  virtual StatusOr<Target> TargetOf(uint64_t size) = 0;
  // All bytes are in the target. false: nobody wants them any more.
  virtual bool OnArrival() { return true; }
  virtual void OnCancel() {}

  tensorflow::CallOptions* call_options() { return options_ == nullptr ? nullptr : &call_; }

 private:
  static Status Cancelled() { return Status(StatusCode::kCancelled, "the receive was cancelled"); }

  void OnKnown(const StatusOr<int>& rank) {
    if (!rank.ok()) return EndLater(rank.status());
    StatusOr<mpi::Tag> tag = channel_->Draw(*rank);
    if (!tag.ok()) return EndLater(tag.status());
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (cancelled_) return;  // Cancel ends it, or Start
      tag_ = std::move(*tag);
      calling_ = true;
    }
    mpi::Ask ask;
    ask.job = channel_->job().token;
    ask.rank = static_cast<uint32_t>(channel_->job().rank);
    ask.tag = static_cast<uint32_t>(tag_.value());
    Call(ask,
         [self = shared_from_this()](const tensorflow::Status& status) { self->OnAnswer(status); });
    // A cancel that came before the call could be cancelled.
    if (IsCancelled()) call_.StartCancel();
  }

  void OnAnswer(const tensorflow::Status& status) {
    if (!status.ok()) return EndCall(status);
    const google::protobuf::Any& answer = Answer();
    if (answer.type_url() != mpi::Sent::kType) return EndCall(status);
    const StatusOr<mpi::Sent> sent = mpi::DecodeSent(answer.value());
    if (!sent.ok()) return End(sent.status());
    StatusOr<Target> target = TargetOf(sent->size);
    if (!target.ok()) return End(target.status());
    if (IsCancelled()) return End(Cancelled());
    const mpi::Id id = channel_->Receive(
        tag_, target->into, target->size, std::move(target->keep),
        // In MPI's thread, which what follows must not hold up. Not in TensorFlow's pool, which
        // runs it at once, in this thread, when its queue is full.
        [self = shared_from_this()](const Status& ended) {
          RunLater(
              [self, ended] { self->End(ended.ok() && !self->OnArrival() ? Cancelled() : ended); });
        });
    bool cancelled = false;
    {
      std::lock_guard<std::mutex> lock(mu_);
      receive_ = id;
      cancelled = cancelled_;
    }
    if (cancelled) channel_->Cancel(id);
  }

  // Called under the lock of `options_`, which End takes, too.
  void Cancel() {
    std::optional<mpi::Id> receive;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (std::exchange(cancelled_, true)) return;
      receive = receive_;
      if (!calling_) {
        // Not in this thread, which may hold what the end waits for. Else Start ends it.
        if (started_) RunLater([self = shared_from_this()] { self->End(Cancelled()); });
        return;
      }
    }
    OnCancel();
    call_.StartCancel();
    if (receive.has_value()) channel_->Cancel(*receive);
  }

  bool IsCancelled() {
    std::lock_guard<std::mutex> lock(mu_);
    return cancelled_;
  }

  // Not before Start has returned.
  void EndLater(const Status& status) {
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (!started_) {
        early_ = status;
        return;
      }
    }
    End(status);
  }

  void End(const Status& status) { EndCall(OfTransfer(status, caller_->target)); }

  // With the call's own status. Nothing of this is used after it but by who holds it.
  void EndCall(const tensorflow::Status& status) {
    if (ended_.exchange(true)) return;
    // Waits for a cancel under way.
    if (options_ != nullptr) options_->ClearCancelCallback();
    std::exchange(done_, nullptr)(status);
  }

  mpi::Channel* const channel_;
  const std::shared_ptr<const TensorCaller> caller_;
  // The caller's; nullptr: nobody cancels.
  tensorflow::CallOptions* const options_;
  tensorflow::StatusCallback done_;
  // The call's own, so that its end does not end what the caller's cancel.
  tensorflow::CallOptions call_;
  std::atomic<bool> ended_{false};
  std::mutex mu_;
  // Guarded by mu_.
  bool started_ = false;
  std::optional<Status> early_;  // the end that came before that
  bool cancelled_ = false;
  bool calling_ = false;
  std::optional<mpi::Id> receive_;
  // Written before the call, and given back with this.
  mpi::Tag tag_;
};

class TensorReceive final : public MpiReceive {
 public:
  TensorReceive(mpi::Channel* channel, std::shared_ptr<const TensorCaller> caller,
                tensorflow::CallOptions* options, tensorflow::StatusCallback done,
                const tensorflow::RecvTensorRequest& request, tensorflow::TensorResponse* response,
                TensorPeer::Call<tensorflow::RecvTensorRequest> call)
      : MpiReceive(channel, std::move(caller), options, std::move(done)),
        request_(request),
        response_(response),
        make_call_(std::move(call)) {}

 private:
  void Call(const mpi::Ask& ask, tensorflow::StatusCallback done) override {
    tensorflow::RecvTensorRequest asking = request_;
    Pack(ask, asking.mutable_transport_options());
    make_call_(call_options(), asking, std::move(done));
  }
  const google::protobuf::Any& Answer() const override {
    return response_->metadata().transport_options();
  }
  StatusOr<Target> TargetOf(uint64_t size) override {
    const StatusOr<TensorTarget> target = ar_grpc::TargetOf(*response_, size);
    if (!target.ok()) return target.status();
    return Target{target->into, size, std::make_shared<Tensor>(target->tensor)};
  }

  const tensorflow::RecvTensorRequest& request_;
  tensorflow::TensorResponse* const response_;
  const TensorPeer::Call<tensorflow::RecvTensorRequest> make_call_;
};

// By way of memory of ours: a collective frees its buffer when its time is up, and what MPI is to
// write cannot be recalled.
class BufferReceive final : public MpiReceive {
 public:
  BufferReceive(mpi::Channel* channel, std::shared_ptr<const TensorCaller> caller,
                tensorflow::CallOptions* options, tensorflow::StatusCallback done,
                std::shared_ptr<tensorflow::RecvBufRequest> request,
                tensorflow::RecvBufResponse* response,
                TensorPeer::Call<tensorflow::RecvBufRequest> call)
      : MpiReceive(channel, std::move(caller), options, std::move(done)),
        request_(std::move(request)),
        response_(response),
        make_call_(std::move(call)) {}

 private:
  void Call(const mpi::Ask& ask, tensorflow::StatusCallback done) override {
    Pack(ask, request_->mutable_transport_options());
    make_call_(call_options(), *request_, std::move(done));
  }
  const google::protobuf::Any& Answer() const override { return response_->transport_options(); }
  StatusOr<Target> TargetOf(uint64_t size) override {
    const auto wanted = static_cast<uint64_t>(request_->num_bytes());
    if (size != wanted) return WrongSize(size, wanted);
    bytes_.reset(new (std::nothrow) uint8_t[size], std::default_delete<uint8_t[]>());
    if (bytes_ == nullptr) {
      return Status(StatusCode::kResourceExhausted,
                    absl::StrCat("no memory for the ", size, " bytes of a collective's buffer"));
    }
    return Target{bytes_.get(), size, bytes_};
  }
  bool OnArrival() override {
    if (!gate_.BeginWrite()) return false;
    std::memcpy(reinterpret_cast<void*>(request_->buf_ptr()), bytes_.get(), request_->num_bytes());
    gate_.EndWrite();
    // Without options the caller takes the bytes to be where buf_ptr says.
    response_->clear_transport_options();
    return true;
  }
  void OnCancel() override { gate_.Close(); }

  const std::shared_ptr<tensorflow::RecvBufRequest> request_;
  tensorflow::RecvBufResponse* const response_;
  const TensorPeer::Call<tensorflow::RecvBufRequest> make_call_;
  std::shared_ptr<uint8_t> bytes_;
  protocol::WriteGate gate_;
};

// Goes with the GrpcRemoteWorker, while calls can be made; transfers under way do not need it. That
// is kept as long as its task's channel may be used (kept_workers.h), and the introduction with it.
class MpiTensorPeer final : public TensorPeer {
 public:
  MpiTensorPeer(mpi::Channel* channel, std::shared_ptr<const TensorCaller> caller)
      : channel_(channel),
        caller_(std::move(caller)),
        introduction_(std::make_shared<MpiIntroduction>(channel_, caller_)) {}
  ~MpiTensorPeer() override { introduction_->Close(); }

  void ReceiveTensor(tensorflow::CallOptions* options, const tensorflow::RecvTensorRequest& request,
                     tensorflow::TensorResponse* response, Call<tensorflow::RecvTensorRequest> call,
                     tensorflow::StatusCallback done) override {
    if (!IsHostMemory(response->device())) return call(options, request, std::move(done));
    std::make_shared<TensorReceive>(channel_, caller_, options, std::move(done), request, response,
                                    std::move(call))
        ->Start(introduction_);
  }

  void ReceiveBuffer(tensorflow::CallOptions* options,
                     std::shared_ptr<tensorflow::RecvBufRequest> request,
                     tensorflow::RecvBufResponse* response, Call<tensorflow::RecvBufRequest> call,
                     tensorflow::StatusCallback done) override {
    if (!IsHostMemory(*request)) return call(options, *request, std::move(done));
    std::make_shared<BufferReceive>(channel_, caller_, options, std::move(done), std::move(request),
                                    response, std::move(call))
        ->Start(introduction_);
  }

 private:
  mpi::Channel* const channel_;
  const std::shared_ptr<const TensorCaller> caller_;
  const std::shared_ptr<MpiIntroduction> introduction_;
};

}  // namespace

std::shared_ptr<TensorPeer> NewMpiTensorPeer(mpi::Channel* channel,
                                             std::shared_ptr<const TensorCaller> caller) {
  return std::make_shared<MpiTensorPeer>(channel, std::move(caller));
}

}  // namespace ar_grpc
