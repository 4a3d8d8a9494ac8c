// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/verbs_tensor_peer.h"

#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "third_party/ar_grpc/tensorflow/over_grpc.h"
#include "third_party/ar_grpc/tensorflow/protocol_names.h"
#include "third_party/ar_grpc/tensorflow/receive_call.h"
#include "third_party/ar_grpc/tensorflow/run_later.h"
#include "third_party/ar_grpc/tensorflow/verbs_peer_link.h"
#include "third_party/ar_grpc/verbs/messages.h"
#include "third_party/ar_grpc/verbs/receive.h"

namespace ar_grpc {
namespace {

// One transfer, from the introduction to the last byte. A cancel reaches whichever part of it is
// under way; while the request's call is, that ends first, since it has the response.
class VerbsReceive : public std::enable_shared_from_this<VerbsReceive> {
 public:
  VerbsReceive(std::shared_ptr<VerbsPeerLink> link, tensorflow::CallOptions* options,
               tensorflow::StatusCallback done)
      : link_(std::move(link)), waiter_(options, std::move(done)) {}
  virtual ~VerbsReceive() = default;

  // It may have ended, in another thread, when this returns: nothing here uses what makes the calls
  // after the end.
  void Start() {
    const auto self = shared_from_this();
    waiter_.OnCancel([self] { self->Cancel(); });
    if (CancelledBefore()) Cancel();
    link_->WhenKnown([self](const StatusOr<verbs::NamedLink>& link) {
      // Not in this thread, which may have locks that the end takes.
      RunLater([self, link] { self->OnLinked(link); });
    });
  }

 protected:
  // The bytes that are expected; 0: not known.
  virtual uint64_t Room() { return 0; }
  // Makes the call, with the question.
  virtual void Call(tensorflow::CallOptions* options, const verbs::Ask& ask,
                    tensorflow::StatusCallback done) = 0;
  // After it: what the sender does; none: the bytes have come with the response.
  virtual const google::protobuf::Any& Answer() const = 0;
  virtual Status TakeResponse() { return Status(); }
  // kOk, or why so many bytes are not what was asked for.
  virtual Status Fits(uint64_t size) = 0;
  // Takes the bytes.
  virtual Status Take(const uint8_t* bytes, uint64_t size) = 0;
  // Whether a cancel came before the caller's options could tell of it.
  virtual bool CancelledBefore() { return false; }
  virtual void OnCancel() {}

  static Status Cancelled() { return Status(StatusCode::kCancelled, "the receive was cancelled"); }
  VerbsPeerLink& link() { return *link_; }

 private:
  enum class State { kLinking, kCalling, kReceiving };

  void OnLinked(const StatusOr<verbs::NamedLink>& link) {
    if (!link.ok()) return End(link.status());
    auto receive = std::make_shared<verbs::Receive>(
        *link,
        [peer = link_](const verbs::Fetch& fetch, std::function<void(Status)> answered) {
          peer->Tell(fetch, std::move(answered));
        },
        [peer = link_](const verbs::Drop& drop, std::function<void(Status)> answered) {
          peer->Tell(drop, std::move(answered));
        },
        [self = shared_from_this()](const StatusOr<verbs::Receive::Arrived>& arrived) {
          RunLater([self, arrived] { self->OnArrived(arrived); });
        });
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (cancelled_) return;  // Cancel ends it
      receive_ = receive;
      state_ = State::kCalling;
    }
    Call(waiter_.call_options(), receive->Begin(Room()),
         [self = shared_from_this()](const tensorflow::Status& status) { self->OnAnswer(status); });
    // A cancel that came before the call could be cancelled.
    if (IsCancelled()) waiter_.CancelCall();
  }

  void OnAnswer(const tensorflow::Status& status) {
    if (!status.ok()) {
      receive_->OnOther(FromTensorFlow(status));
      return waiter_.End(status);
    }
    const google::protobuf::Any& answer = Answer();
    if (answer.type_url() == verbs::Written::kType) {
      const StatusOr<verbs::Written> written = verbs::DecodeWritten(answer.value());
      if (!written.ok()) return Fail(written.status());
      BeginReceiving();
      return receive_->OnWritten(*written);
    }
    if (answer.type_url() == verbs::Held::kType) {
      const StatusOr<verbs::Held> held = verbs::DecodeHeld(answer.value());
      if (!held.ok()) return Fail(held.status());
      // Before memory is registered for what the peer only says.
      if (Status status = Fits(held->size); !status.ok()) return Fail(status);
      BeginReceiving();
      // It may wait for memory to be registered.
      return RunLater([self = shared_from_this(), held = *held] { self->receive_->OnHeld(held); });
    }
    receive_->OnOther(Status());
    End(TakeResponse());
  }

  // From now on a cancel ends it, as no call has the response any more.
  void BeginReceiving() {
    bool cancelled = false;
    {
      std::lock_guard<std::mutex> lock(mu_);
      state_ = State::kReceiving;
      cancelled = cancelled_;
    }
    if (cancelled) receive_->Cancel();
  }

  void Fail(const Status& status) {
    receive_->OnOther(status);
    End(status);
  }

  void OnArrived(const StatusOr<verbs::Receive::Arrived>& arrived) {
    End(arrived.ok() ? Take(arrived->block->data(), arrived->size) : arrived.status());
  }

  // The end comes in another thread (Waiter).
  void Cancel() {
    std::shared_ptr<verbs::Receive> receive;
    {
      std::lock_guard<std::mutex> lock(mu_);
      if (std::exchange(cancelled_, true)) return;
      if (state_ == State::kLinking) {
        return RunLater([self = shared_from_this()] { self->End(Cancelled()); });
      }
      if (state_ == State::kReceiving) receive = receive_;
    }
    OnCancel();
    waiter_.CancelCall();
    if (receive) receive->Cancel();
  }

  bool IsCancelled() {
    std::lock_guard<std::mutex> lock(mu_);
    return cancelled_;
  }

  void End(const Status& status) { waiter_.End(OfTransfer(status, link_->target())); }

  const std::shared_ptr<VerbsPeerLink> link_;
  Waiter waiter_;
  std::mutex mu_;
  // Guarded by mu_.
  State state_ = State::kLinking;
  bool cancelled_ = false;
  std::shared_ptr<verbs::Receive> receive_;  // set before the call
};

class TensorReceive final : public VerbsReceive {
 public:
  TensorReceive(std::shared_ptr<VerbsPeerLink> link, tensorflow::CallOptions* options,
                tensorflow::StatusCallback done, const tensorflow::RecvTensorRequest& request,
                tensorflow::TensorResponse* response,
                TensorPeer::Call<tensorflow::RecvTensorRequest> call)
      : VerbsReceive(std::move(link), options, std::move(done)),
        call_{request, response, std::move(call)} {}

 private:
  uint64_t Room() override { return link().RoomFor(call_.request.rendezvous_key()); }
  void Call(tensorflow::CallOptions* options, const verbs::Ask& ask,
            tensorflow::StatusCallback done) override {
    call_.Make(options, ask, std::move(done));
  }
  const google::protobuf::Any& Answer() const override { return call_.answer(); }
  Status Fits(uint64_t size) override { return TargetOf(*call_.response, size).status(); }
  Status Take(const uint8_t* bytes, uint64_t size) override {
    const StatusOr<TensorTarget> target = TargetOf(*call_.response, size);
    if (!target.ok()) return target.status();
    std::memcpy(target->into, bytes, size);
    link().Remember(call_.request.rendezvous_key(), size);
    return Status();
  }

  TensorCall call_;
};

class BufferReceive final : public VerbsReceive {
 public:
  BufferReceive(std::shared_ptr<VerbsPeerLink> link, tensorflow::CallOptions* options,
                tensorflow::StatusCallback done,
                std::shared_ptr<tensorflow::RecvBufRequest> request,
                tensorflow::RecvBufResponse* response,
                TensorPeer::Call<tensorflow::RecvBufRequest> call)
      : VerbsReceive(std::move(link), options, std::move(done)),
        call_{std::move(request), response, std::move(call)} {}

 private:
  void Call(tensorflow::CallOptions* options, const verbs::Ask& ask,
            tensorflow::StatusCallback done) override {
    call_.Make(options, ask, std::move(done));
  }
  const google::protobuf::Any& Answer() const override { return call_.answer(); }
  Status Fits(uint64_t size) override { return call_.Fits(size); }
  Status Take(const uint8_t* bytes, uint64_t size) override {
    if (Status status = Fits(size); !status.ok()) return status;
    return call_.Take(bytes) ? Status() : Cancelled();
  }
  Status TakeResponse() override { return call_.TakeResponse(); }
  bool CancelledBefore() override { return call_.gate->closed(); }
  void OnCancel() override { call_.gate->Close(); }

  BufferCall call_;
};

// Goes with the GrpcRemoteWorker, while calls can be made.
class VerbsTensorPeer final : public TensorPeer {
 public:
  VerbsTensorPeer(fabric::Context* context, std::shared_ptr<const TensorCaller> caller)
      : link_(std::make_shared<VerbsPeerLink>(context, std::move(caller))) {}
  ~VerbsTensorPeer() override { link_->Close(); }

  void ReceiveTensor(tensorflow::CallOptions* options, const tensorflow::RecvTensorRequest& request,
                     tensorflow::TensorResponse* response, Call<tensorflow::RecvTensorRequest> call,
                     tensorflow::StatusCallback done) override {
    if (!IsHostMemory(response->device())) return call(options, request, std::move(done));
    std::make_shared<TensorReceive>(link_, options, std::move(done), request, response,
                                    std::move(call))
        ->Start();
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
    std::make_shared<BufferReceive>(link_, options, std::move(done), std::move(request), response,
                                    std::move(call))
        ->Start();
  }

 private:
  const std::shared_ptr<VerbsPeerLink> link_;
  OverGrpcNotice notice_{kVerbsProtocol};
};

}  // namespace

std::shared_ptr<TensorPeer> NewVerbsTensorPeer(fabric::Context* context,
                                               std::shared_ptr<const TensorCaller> caller) {
  return std::make_shared<VerbsTensorPeer>(context, std::move(caller));
}

}  // namespace ar_grpc
