// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_PROTOCOL_NAMES_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_PROTOCOL_NAMES_H_

#include <array>
#include <string>

#include "absl/strings/string_view.h"

namespace ar_grpc {

// The value of `ServerDef.protocol`, of a ClusterResolver's `rpc_layer`, and of a target's scheme.
inline constexpr absl::string_view kArProtocol = "grpc+ar";
inline constexpr absl::string_view kArScheme = "grpc+ar://";
inline constexpr absl::string_view kMpiProtocol = "grpc+mpi";
inline constexpr absl::string_view kMpiScheme = "grpc+mpi://";
inline constexpr absl::string_view kVerbsProtocol = "grpc+verbs";
inline constexpr absl::string_view kVerbsScheme = "grpc+verbs://";
inline constexpr std::array<absl::string_view, 3> kOurSchemes = {kArScheme, kMpiScheme,
                                                                 kVerbsScheme};
// The scheme under which servers of every protocol announce themselves (`Server.target`).
inline constexpr absl::string_view kStockScheme = "grpc://";

// The `host:port` of a session target such as "grpc+ar://host:port".
inline std::string HostPortOfTarget(absl::string_view target) {
  const size_t scheme_end = target.find("://");
  return std::string(scheme_end == absl::string_view::npos ? target
                                                           : target.substr(scheme_end + 3));
}

// The target that the server at `target` registered its master under, in this process.
inline std::string RegisteredTarget(absl::string_view target) {
  return std::string(kStockScheme) + HostPortOfTarget(target);
}

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_PROTOCOL_NAMES_H_
