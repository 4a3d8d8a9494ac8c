// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_OWN_CALL_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_OWN_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "third_party/ar_grpc/tensorflow/tensor_channel.h"

namespace ar_grpc {

// Makes a call of a channel's own with `message`, which Pack takes, and an answer of `size` bytes.
// `done` gets the answer, of which nothing is to be read where the status is an error. The caller's
// GrpcRemoteWorker must live until this returns.
template <typename Message>
void MakeOwnCall(const TensorCaller& caller, const Message& message, uint64_t size,
                 std::function<void(const Status&, const std::string& answer)> done) {
  struct Reply {
    std::string bytes;
    TensorCaller::Chunk chunk;
  };
  auto reply = std::make_shared<Reply>();
  reply->bytes.resize(size);
  reply->chunk.into = reinterpret_cast<uint8_t*>(reply->bytes.data());
  reply->chunk.size = size;
  reply->chunk.gate = std::make_shared<protocol::WriteGate>();
  tensorflow::RecvTensorRequest request;
  Pack(message, request.mutable_transport_options());
  caller.call(nullptr, request, &reply->chunk,
              [reply, done = std::move(done)](const tensorflow::Status& status) {
                done(FromTensorFlow(status), reply->bytes);
              });
}

// Of the first call of a channel to `target`, for errors: a server without that channel takes the
// call for a request of a tensor, and finds no key in it. `cure` is how to start it.
inline Status OfFirstCall(const Status& status, const std::string& target,
                          const std::string& protocol, const std::string& cure) {
  if (status.code() != StatusCode::kInvalidArgument && status.code() != StatusCode::kInternal &&
      status.code() != StatusCode::kUnimplemented) {
    return status;
  }
  return Status(StatusCode::kFailedPrecondition, target + " does not speak " + protocol + ": " +
                                                     cure + " (it answered: " + status.message() +
                                                     ")");
}

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_OWN_CALL_H_
