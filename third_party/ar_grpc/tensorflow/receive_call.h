// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_RECEIVE_CALL_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_RECEIVE_CALL_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "third_party/ar_grpc/protocol/write_gate.h"
#include "third_party/ar_grpc/tensorflow/collective_buffer.h"
#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

// What the receivers of grpc+mpi and grpc+verbs have in common: a call that asks for a tensor or a
// collective's buffer, with the channel's question in the request's options and the sender's answer
// in the response's; and its caller, who is told once, and may cancel.
namespace ar_grpc {

// The one who waits for a tensor. `options` may be nullptr: then nobody cancels.
class Waiter {
 public:
  Waiter(tensorflow::CallOptions* options, tensorflow::StatusCallback done)
      : options_(options), done_(std::move(done)) {}

  // `cancel` is called under the lock of `options`, which End takes, too: it must not end anything
  // in that thread.
  void OnCancel(std::function<void()> cancel) {
    if (options_ == nullptr) return;
    call_.SetTimeout(options_->GetTimeout());
    options_->SetCancelCallback(std::move(cancel));
  }
  // For the call itself: its end does not end what the caller's cancel. nullptr where nobody does.
  tensorflow::CallOptions* call_options() { return options_ == nullptr ? nullptr : &call_; }
  void CancelCall() { call_.StartCancel(); }

  // The first one counts. Waits for a cancel under way. Once `done` runs, what makes the calls, and
  // request and response, may be gone.
  void End(const tensorflow::Status& status) {
    if (ended_.exchange(true)) return;
    if (options_ != nullptr) options_->ClearCancelCallback();
    const tensorflow::StatusCallback done = std::move(done_);
    done(status);
  }

 private:
  tensorflow::CallOptions* const options_;
  tensorflow::StatusCallback done_;
  tensorflow::CallOptions call_;
  std::atomic<bool> ended_{false};
};

struct TensorCall {
  const tensorflow::RecvTensorRequest& request;
  tensorflow::TensorResponse* const response;
  const TensorPeer::Call<tensorflow::RecvTensorRequest> make;

  template <typename Ask>
  void Make(tensorflow::CallOptions* options, const Ask& ask, tensorflow::StatusCallback done) {
    tensorflow::RecvTensorRequest asking = request;
    Pack(ask, asking.mutable_transport_options());
    make(options, asking, std::move(done));
  }
  const google::protobuf::Any& answer() const { return response->metadata().transport_options(); }
};

struct BufferCall {
  const std::shared_ptr<tensorflow::RecvBufRequest> request;
  tensorflow::RecvBufResponse* const response;
  const TensorPeer::Call<tensorflow::RecvBufRequest> make;
  const std::shared_ptr<protocol::WriteGate> gate = ScopedBufferGate::Current();

  template <typename Ask>
  void Make(tensorflow::CallOptions* options, const Ask& ask, tensorflow::StatusCallback done) {
    Pack(ask, request->mutable_transport_options());
    make(options, *request, std::move(done));
  }
  const google::protobuf::Any& answer() const { return response->transport_options(); }
  Status Fits(uint64_t size) const {
    const auto wanted = static_cast<uint64_t>(request->num_bytes());
    return size == wanted ? Status() : WrongSize(size, wanted);
  }
  Status TakeResponse() { return TakeBytes(*request, gate.get(), response); }
  // Copies as many bytes as Fit. false: a cancel came before.
  bool Take(const uint8_t* bytes) {
    if (!gate->BeginWrite()) return false;
    std::memcpy(reinterpret_cast<void*>(request->buf_ptr()), bytes, request->num_bytes());
    gate->EndWrite();
    // Without options the caller takes the bytes to be where buf_ptr says.
    response->clear_transport_options();
    return true;
  }
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_RECEIVE_CALL_H_
