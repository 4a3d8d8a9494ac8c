// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/tcp_endpoint.h"

#include <atomic>
#include <chrono>
#include <utility>

#include "src/core/lib/iomgr/error.h"
#include "third_party/ar_grpc/grpc/deadline_timer.h"

namespace ar_grpc {
namespace {

class TcpEndpoint : public grpc_endpoint {
 public:
  TcpEndpoint(std::shared_ptr<protocol::Node> node, std::shared_ptr<protocol::Link> link,
              grpc_endpoint* tcp)
      : node_(std::move(node)), link_(std::move(link)), tcp_(tcp) {
    static const grpc_endpoint_vtable kVtable = {
        [](grpc_endpoint* ep, grpc_slice_buffer* slices, grpc_closure* cb, bool urgent, int min) {
          grpc_endpoint_read(Self(ep)->tcp_, slices, cb, urgent, min);
        },
        [](grpc_endpoint* ep, grpc_slice_buffer* slices, grpc_closure* cb, void* arg, int max) {
          grpc_endpoint_write(Self(ep)->tcp_, slices, cb, arg, max);
        },
        [](grpc_endpoint* ep, grpc_pollset* pollset) {
          grpc_endpoint_add_to_pollset(Self(ep)->tcp_, pollset);
        },
        [](grpc_endpoint* ep, grpc_pollset_set* set) {
          grpc_endpoint_add_to_pollset_set(Self(ep)->tcp_, set);
        },
        [](grpc_endpoint* ep, grpc_pollset_set* set) {
          grpc_endpoint_delete_from_pollset_set(Self(ep)->tcp_, set);
        },
        [](grpc_endpoint* ep, grpc_error_handle why) {
          Self(ep)->EndLink();
          grpc_endpoint_shutdown(Self(ep)->tcp_, why);
        },
        [](grpc_endpoint* ep) {
          std::unique_ptr<TcpEndpoint> self(Self(ep));
          self->EndLink();
          grpc_endpoint_destroy(self->tcp_);
        },
        [](grpc_endpoint* ep) { return grpc_endpoint_get_peer(Self(ep)->tcp_); },
        [](grpc_endpoint* ep) { return grpc_endpoint_get_local_address(Self(ep)->tcp_); },
        [](grpc_endpoint* ep) { return grpc_endpoint_get_fd(Self(ep)->tcp_); },
        [](grpc_endpoint* ep) { return grpc_endpoint_can_track_err(Self(ep)->tcp_); },
    };
    vtable = &kVtable;
  }

 private:
  static TcpEndpoint* Self(grpc_endpoint* endpoint) { return static_cast<TcpEndpoint*>(endpoint); }

  void EndLink() {
    if (link_ended_.exchange(true)) return;
    if (!Retired()) return node_->RemoveLink(link_);
    node_->LinkRetired(link_);
    auto timer = std::make_shared<DeadlineTimer>();
    // What it runs holds it, and is destroyed once it has run.
    timer->Set(std::chrono::steady_clock::now() + protocol::kAwayAfterRetirement,
               [timer, node = node_, link = link_] { node->RemoveLink(link); });
  }

  // Rather than that its peer has died, or this server ends. gRPC spreads the age by a tenth.
  bool Retired() const {
    const auto age = std::chrono::steady_clock::now() - made_;
    return link_->retires_after().count() > 0 && age >= link_->retires_after() * 9 / 10;
  }

  const std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
  const std::shared_ptr<protocol::Node> node_;
  const std::shared_ptr<protocol::Link> link_;
  grpc_endpoint* const tcp_;
  std::atomic<bool> link_ended_{false};
};

}  // namespace

grpc_endpoint* NewTcpEndpoint(std::shared_ptr<protocol::Node> node,
                              std::shared_ptr<protocol::Link> link, grpc_endpoint* tcp) {
  return std::make_unique<TcpEndpoint>(std::move(node), std::move(link), tcp).release();
}

}  // namespace ar_grpc
