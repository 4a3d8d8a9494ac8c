// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_OVER_GRPC_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_OVER_GRPC_H_

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tensorflow/core/protobuf/worker.pb.h"
#include "third_party/ar_grpc/base/log.h"

namespace ar_grpc {

// Tells the log that `protocol` leaves buffers of collectives to gRPC, which is slower and for
// which nobody asked: once for each of these. Thread-safe.
class OverGrpcNotice {
 public:
  explicit OverGrpcNotice(absl::string_view protocol) : protocol_(protocol) {}

  // What a device receives, a GPU for example, TensorFlow itself copies to it.
  void ReceivedForDevice(const tensorflow::RecvBufRequest& request) {
    Say(absl::StrCat("what ", request.dst_device(), " receives goes to a device"));
  }
  // The receiving peer speaks another protocol.
  void SentToOther(const tensorflow::RecvBufRequest& request) {
    Say(absl::StrCat("the server of ", request.dst_device(), ", which receives, does not speak ",
                     protocol_));
  }

 private:
  void Say(const std::string& why) {
    if (said_.exchange(true)) return;
    Log(Severity::kWarning, absl::StrCat(protocol_, ": a collective goes over gRPC: ", why));
  }

  const absl::string_view protocol_;
  std::atomic<bool> said_{false};
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_OVER_GRPC_H_
