// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_FRESH_CONNECTION_H_
#define THIRD_PARTY_AR_GRPC_GRPC_FRESH_CONNECTION_H_

#include <grpc/support/port_platform.h>

#include <string>

#include "src/core/lib/channel/channel_args.h"
#include "src/core/lib/gprpp/time.h"
#include "src/core/lib/iomgr/closure.h"
#include "src/core/lib/iomgr/endpoint.h"
#include "src/core/lib/iomgr/error.h"
#include "src/core/lib/iomgr/pollset_set.h"
#include "src/core/lib/iomgr/resolved_address.h"

namespace ar_grpc {

// A client's second TCP connection to the same peer, for a handshake that cannot go on over the
// first. Not thread-safe: one serializer runs all of it.
//
// An attempt to connect is not given up: gRPC can cancel one, but does not say when it needs the
// pollset set no more. So it may end after the handshake, when nobody polls for that any more
// (Abandon); gRPC's backup poller looks at it meanwhile, or it would stay until its deadline.
class FreshConnection {
 public:
  // `interested_parties` poll it until Abandon or Take.
  explicit FreshConnection(grpc_pollset_set* interested_parties)
      : interested_parties_(interested_parties) {}

  // Connects to `peer`, as gRPC writes addresses. `connected` then runs in a thread of gRPC's, or
  // not at all where this is an error. The owner holds a reference to itself until it has run.
  absl::Status Start(const std::string& peer, const grpc_core::ChannelArgs& args,
                     grpc_core::Timestamp deadline, grpc_closure* connected);
  // The endpoint, polled by the interested parties, once `connected` has run without an error.
  grpc_endpoint* Take();
  // The handshake has ended before `connected` ran: the interested parties are left alone, and
  // what comes is closed by Discard.
  void Abandon();
  // To be called by `connected` instead of Take.
  void Discard();

 private:
  void StopPolling();

  grpc_pollset_set* const interested_parties_;
  // What polls while it connects; nullptr: it does not.
  grpc_pollset_set* polling_ = nullptr;
  bool polled_by_parties_ = false;
  grpc_resolved_address address_;
  grpc_endpoint* endpoint_ = nullptr;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_FRESH_CONNECTION_H_
