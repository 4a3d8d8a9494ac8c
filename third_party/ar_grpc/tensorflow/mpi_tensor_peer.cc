// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/mpi_tensor_peer.h"

#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "third_party/ar_grpc/mpi/messages.h"
#include "third_party/ar_grpc/tensorflow/mpi_introduction.h"
#include "third_party/ar_grpc/tensorflow/over_grpc.h"
#include "third_party/ar_grpc/tensorflow/protocol_names.h"
#include "third_party/ar_grpc/tensorflow/receive_call.h"
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
      : channel_(channel), caller_(std::move(caller)), waiter_(options, std::move(done)) {}
  virtual ~MpiReceive() = default;

  // Nothing ends before it returns: who waits for the end may delete what makes the calls.
  void Start(std::shared_ptr<MpiIntroduction> introduction) {
    const auto self = shared_from_this();
    waiter_.OnCancel([self] { self->Cancel(); });
    if (CancelledBefore()) Cancel();
    introduction->WhenKnown([self](const StatusOr<int>& rank) { self->OnKnown(rank); });
    std::lock_guard<std::mutex> lock(mu_);
    started_ = true;
    if (!early_.has_value() && cancelled_ && !calling_) early_ = Cancelled();
    if (early_.has_value()) RunLater([self, status = *early_] { self->End(status); });
  }

 protected:
  // Makes the call, with the question.
  virtual void Call(tensorflow::CallOptions* options, const mpi::Ask& ask,
                    tensorflow::StatusCallback done) = 0;
  // After it: what is being sent; none: the bytes have come with the response.
  virtual const google::protobuf::Any& Answer() const = 0;
  virtual Status TakeResponse() { return Status(); }
  virtual StatusOr<Target> TargetOf(uint64_t size) = 0;
  // All bytes are in the target. false: nobody wants them any more.
  virtual bool OnArrival() { return true; }
  // Whether a cancel came before the caller's options could tell of it.
  virtual bool CancelledBefore() { return false; }
  virtual void OnCancel() {}

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
    Call(waiter_.call_options(), ask,
         [self = shared_from_this()](const tensorflow::Status& status) { self->OnAnswer(status); });
    // A cancel that came before the call could be cancelled.
    if (IsCancelled()) waiter_.CancelCall();
  }

  void OnAnswer(const tensorflow::Status& status) {
    if (!status.ok()) return waiter_.End(status);
    const google::protobuf::Any& answer = Answer();
    if (answer.type_url() != mpi::Sent::kType) return End(TakeResponse());
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

  // The end comes in another thread (Waiter).
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
    waiter_.CancelCall();
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

  void End(const Status& status) { waiter_.End(OfTransfer(status, caller_->target)); }

  mpi::Channel* const channel_;
  const std::shared_ptr<const TensorCaller> caller_;
  Waiter waiter_;
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
        call_{request, response, std::move(call)} {}

 private:
  void Call(tensorflow::CallOptions* options, const mpi::Ask& ask,
            tensorflow::StatusCallback done) override {
    call_.Make(options, ask, std::move(done));
  }
  const google::protobuf::Any& Answer() const override { return call_.answer(); }
  StatusOr<Target> TargetOf(uint64_t size) override {
    const StatusOr<TensorTarget> target = ar_grpc::TargetOf(*call_.response, size);
    if (!target.ok()) return target.status();
    return Target{target->into, size, std::make_shared<Tensor>(target->tensor)};
  }

  TensorCall call_;
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
        call_{std::move(request), response, std::move(call)} {}

 private:
  void Call(tensorflow::CallOptions* options, const mpi::Ask& ask,
            tensorflow::StatusCallback done) override {
    call_.Make(options, ask, std::move(done));
  }
  const google::protobuf::Any& Answer() const override { return call_.answer(); }
  StatusOr<Target> TargetOf(uint64_t size) override {
    if (Status status = call_.Fits(size); !status.ok()) return status;
    bytes_.reset(new (std::nothrow) uint8_t[size], std::default_delete<uint8_t[]>());
    if (bytes_ == nullptr) {
      return Status(StatusCode::kResourceExhausted,
                    absl::StrCat("no memory for the ", size, " bytes of a collective's buffer"));
    }
    return Target{bytes_.get(), size, bytes_};
  }
  Status TakeResponse() override { return call_.TakeResponse(); }
  bool OnArrival() override { return call_.Take(bytes_.get()); }
  bool CancelledBefore() override { return call_.gate->closed(); }
  void OnCancel() override { call_.gate->Close(); }

  BufferCall call_;
  std::shared_ptr<uint8_t> bytes_;
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
    if (!IsHostMemory(*request)) {
      notice_.ReceivedForDevice(*request);
      return TensorPeer::ReceiveBuffer(options, std::move(request), response, std::move(call),
                                       std::move(done));
    }
    std::make_shared<BufferReceive>(channel_, caller_, options, std::move(done), std::move(request),
                                    response, std::move(call))
        ->Start(introduction_);
  }

 private:
  mpi::Channel* const channel_;
  const std::shared_ptr<const TensorCaller> caller_;
  const std::shared_ptr<MpiIntroduction> introduction_;
  OverGrpcNotice notice_{kMpiProtocol};
};

}  // namespace

std::shared_ptr<TensorPeer> NewMpiTensorPeer(mpi::Channel* channel,
                                             std::shared_ptr<const TensorCaller> caller) {
  return std::make_shared<MpiTensorPeer>(channel, std::move(caller));
}

}  // namespace ar_grpc
