// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include <memory>
#include <utility>

#include "src/core/lib/channel/channel_args.h"
#include "src/core/lib/transport/handshaker.h"
#include "src/core/lib/transport/handshaker_factory.h"
#include "src/core/lib/transport/handshaker_registry.h"
#include "third_party/ar_grpc/grpc/ar_handshaker.h"
#include "third_party/ar_grpc/grpc/channel_args.h"
#include "third_party/ar_grpc/grpc/new_handshaker.h"
#include "third_party/ar_grpc/grpc/poller.h"

namespace ar_grpc {
namespace {

class ArHandshakerFactory : public grpc_core::HandshakerFactory {
 public:
  explicit ArHandshakerFactory(protocol::End end) : end_(end) {}

  void AddHandshakers(const grpc_core::ChannelArgs& args, grpc_pollset_set* interested_parties,
                      grpc_core::HandshakeManager* manager) override {
    std::shared_ptr<protocol::Node> node = NodeOf(args);
    if (node == nullptr) return;
    manager->Add(NewHandshaker(end_, std::move(node), interested_parties));
  }
  HandshakerPriority Priority() override {
    return HandshakerPriority::kReadAheadSecurityHandshakers;
  }

 private:
  const protocol::End end_;
};

}  // namespace

void RegisterHandshakers(grpc_core::CoreConfiguration::Builder* builder) {
  InstallPoller();
  builder->handshaker_registry()->RegisterHandshakerFactory(
      grpc_core::HANDSHAKER_CLIENT, std::make_unique<ArHandshakerFactory>(protocol::End::kClient));
  builder->handshaker_registry()->RegisterHandshakerFactory(
      grpc_core::HANDSHAKER_SERVER, std::make_unique<ArHandshakerFactory>(protocol::End::kServer));
}

}  // namespace ar_grpc
