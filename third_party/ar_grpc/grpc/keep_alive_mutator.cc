// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/keep_alive_mutator.h"

#include <string>

#include "src/core/lib/iomgr/socket_mutator.h"
#include "third_party/ar_grpc/base/keep_alive.h"
#include "third_party/ar_grpc/base/log.h"

namespace ar_grpc {
namespace {

// Always true. A connection without probes is as good as stock gRPC's, and gRPC makes more of a
// false than it is: after one for an accepted connection a server accepts no other.
bool AskOf(const grpc_mutate_socket_info* info, grpc_socket_mutator*) {
  if (info->usage == GRPC_FD_SERVER_LISTENER_USAGE) return true;
  const Status asked = KeepAlive(info->fd);
  if (!asked.ok()) {
    static const bool said = [&] {
      Log(Severity::kWarning,
          "a host that dies may not be noticed over TCP: " + std::string(asked.message()));
      return true;
    }();
    static_cast<void>(said);
  }
  return true;
}

// One for all and never destroyed: gRPC takes arguments with the same mutator for equal, so that
// channels still share connections.
grpc_socket_mutator* Mutator() {
  static constexpr grpc_socket_mutator_vtable kVtable = {
      nullptr,
      [](grpc_socket_mutator*, grpc_socket_mutator*) { return 0; },
      [](grpc_socket_mutator*) {},
      AskOf,
  };
  static grpc_socket_mutator* const mutator = [] {
    auto* const made = new grpc_socket_mutator;
    grpc_socket_mutator_init(made, &kVtable);
    return made;
  }();
  return mutator;
}

}  // namespace

void SetKeepAlive(::grpc::ChannelArguments* arguments) {
  // The arguments take a reference over.
  arguments->SetSocketMutator(grpc_socket_mutator_ref(Mutator()));
}

}  // namespace ar_grpc
