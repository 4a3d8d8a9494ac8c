// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/handshake_machine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/registry.h"

namespace ar_grpc {
namespace {

using protocol::Instant;
using protocol::Steps;

Instant Now() { return std::chrono::steady_clock::now(); }

Status Reaches(const protocol::Brochure& brochure) {
  fabric::Context* const context = fabric::Find(brochure.fabric);
  return context == nullptr ? Status(StatusCode::kNotFound, "this end does not have it")
                            : context->Reaches(brochure.bytes);
}

}  // namespace

HandshakeMachine::HandshakeMachine(protocol::End end, protocol::HandshakeOptions options,
                                   uint16_t version) {
  if (end == protocol::End::kClient) {
    client_ = std::make_unique<protocol::ClientHandshake>(std::move(options), version);
  } else {
    server_ = std::make_unique<protocol::ServerHandshake>(std::move(options), Reaches);
  }
}

Steps HandshakeMachine::Start() { return client_ ? client_->Start(Now()) : server_->Start(Now()); }

Steps HandshakeMachine::Received(const std::string& bytes) {
  return client_ ? client_->Received(bytes, Now()) : server_->Received(bytes, Now());
}

Steps HandshakeMachine::Closed() {
  return client_ ? client_->Closed(Now()) : server_->Closed(Now());
}

Steps HandshakeMachine::FrameToSend(uint32_t attempt, std::string bytes) {
  return client_ ? client_->FrameToSend(attempt, std::move(bytes), Now())
                 : server_->FrameToSend(attempt, std::move(bytes), Now());
}

Steps HandshakeMachine::Attached(uint32_t attempt, const Status& status) {
  return client_ ? client_->Attached(attempt, status, Now())
                 : server_->Attached(attempt, status, Now());
}

Steps HandshakeMachine::Expired() {
  return client_ ? client_->Expired(Now()) : server_->Expired(Now());
}

Steps HandshakeMachine::Reconnected() { return client_->Reconnected(Now()); }

Instant HandshakeMachine::deadline() const {
  return client_ ? client_->deadline() : server_->deadline();
}

bool HandshakeMachine::ended() const { return client_ ? client_->ended() : server_->ended(); }

bool HandshakeMachine::wants_bytes() const {
  return client_ ? client_->wants_bytes() : server_->wants_bytes();
}

const protocol::Peer& HandshakeMachine::peer() const {
  return client_ ? client_->peer() : server_->peer();
}

int HandshakeMachine::version_to_remember() const {
  return client_ ? client_->version_to_remember() : -1;
}

std::string HandshakeMachine::TakeUnread() {
  return client_ ? client_->TakeUnread() : server_->TakeUnread();
}

bool HandsOnTcp(protocol::Step::Kind kind) {
  return kind == protocol::Step::Kind::kEstablished || kind == protocol::Step::Kind::kStayOnTcp ||
         kind == protocol::Step::Kind::kStayOnPlainTcp;
}

protocol::HandshakeOptions HandshakeOptionsFor(const protocol::NodeId& node,
                                               const std::vector<std::string>& allowed) {
  protocol::HandshakeOptions options;
  options.node = node;
  options.tcp_allowed = AllowsTcp(allowed);
  for (const std::string& name : allowed) {
    fabric::Context* const context = fabric::Find(name);
    if (context == nullptr) continue;  // tcp
    Status why = context->Available();
    if (why.ok()) {
      StatusOr<std::string> brochure = context->Brochure();
      if (brochure.ok()) {
        options.fabrics.push_back({name, std::move(*brochure)});
        if (!context->capabilities().stream) options.without_stream.push_back(name);
        continue;
      }
      why = brochure.status();
    }
    options.lacked.push_back({name, why.message()});
  }
  return options;
}

bool AllowsTcp(const std::vector<std::string>& allowed) {
  return std::find(allowed.begin(), allowed.end(), fabric::kTcp) != allowed.end();
}

}  // namespace ar_grpc
