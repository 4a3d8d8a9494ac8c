// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/fresh_connection.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/core/ext/filters/client_channel/backup_poller.h"
#include "src/core/lib/address_utils/parse_address.h"
#include "src/core/lib/event_engine/channel_args_endpoint_config.h"
#include "src/core/lib/iomgr/tcp_client.h"
#include "src/core/lib/uri/uri_parser.h"

namespace ar_grpc {

absl::Status FreshConnection::Start(const std::string& peer, const grpc_core::ChannelArgs& args,
                                    grpc_core::Timestamp deadline, grpc_closure* connected) {
  absl::StatusOr<grpc_core::URI> uri = grpc_core::URI::Parse(peer);
  if (!uri.ok() || !grpc_parse_uri(*uri, &address_)) {
    return GRPC_ERROR_CREATE(absl::StrCat("not an address to connect to: ", peer));
  }
  polling_ = grpc_pollset_set_create();
  grpc_client_channel_start_backup_polling(polling_);
  grpc_pollset_set_add_pollset_set(polling_, interested_parties_);
  polled_by_parties_ = true;
  grpc_tcp_client_connect(connected, &endpoint_, polling_,
                          grpc_event_engine::experimental::ChannelArgsEndpointConfig(args),
                          &address_, deadline);
  return absl::OkStatus();
}

grpc_endpoint* FreshConnection::Take() {
  StopPolling();
  grpc_endpoint* const endpoint = std::exchange(endpoint_, nullptr);
  grpc_endpoint_add_to_pollset_set(endpoint, interested_parties_);
  return endpoint;
}

void FreshConnection::Abandon() {
  if (!std::exchange(polled_by_parties_, false)) return;
  grpc_pollset_set_del_pollset_set(polling_, interested_parties_);
}

void FreshConnection::Discard() {
  StopPolling();
  if (endpoint_ == nullptr) return;
  grpc_endpoint_shutdown(endpoint_, GRPC_ERROR_CREATE("handshake shut down"));
  grpc_endpoint_destroy(std::exchange(endpoint_, nullptr));
}

void FreshConnection::StopPolling() {
  Abandon();
  grpc_client_channel_stop_backup_polling(polling_);
  grpc_pollset_set_destroy(std::exchange(polling_, nullptr));
}

}  // namespace ar_grpc
