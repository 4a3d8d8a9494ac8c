// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/channel_args.h"

#include <algorithm>

#include "src/core/lib/gpr/useful.h"
#include "src/core/lib/security/security_connector/security_connector.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/fabric/registry.h"

namespace ar_grpc {
namespace {

using NodePointer = std::shared_ptr<protocol::Node>;

bool Encrypts(const grpc_core::ChannelArgs& args) {
  const auto* const connector = args.GetObject<grpc_security_connector>();
  return connector != nullptr && connector->url_scheme() == GRPC_SSL_URL_SCHEME;
}

// Who encrypts does not expect that bytes and keys cross the network in the clear.
std::vector<std::string> WithoutUncovered(std::vector<std::string> names) {
  const auto uncovered = [](const std::string& name) {
    const fabric::Context* const context = fabric::Find(name);
    return context != nullptr && context->capabilities().crosses_network;
  };
  const auto end = std::stable_partition(names.begin(), names.end(),
                                         [&](const std::string& name) { return !uncovered(name); });
  if (end != names.end()) {
    static const bool said = [&] {
      Log(Severity::kInfo, *end + " is not used under TLS, which does not cover it, unless " +
                               std::string(kFabricsArg) + " names it");
      return true;
    }();
    static_cast<void>(said);
  }
  names.erase(end, names.end());
  return names;
}

}  // namespace

const grpc_arg_pointer_vtable* NodeArgVtable() {
  static const grpc_arg_pointer_vtable kVtable = {
      [](void* node) -> void* { return new NodePointer(*static_cast<NodePointer*>(node)); },
      [](void* node) { delete static_cast<NodePointer*>(node); },
      // Subchannels are shared by channels whose arguments are equal.
      [](void* one, void* other) {
        return grpc_core::QsortCompare(static_cast<NodePointer*>(one)->get(),
                                       static_cast<NodePointer*>(other)->get());
      },
  };
  return &kVtable;
}

grpc_arg NodeArg(const NodePointer& node) {
  grpc_arg arg;
  arg.type = GRPC_ARG_POINTER;
  arg.key = const_cast<char*>(kNodeArg);
  arg.value.pointer.p = const_cast<NodePointer*>(&node);
  arg.value.pointer.vtable = NodeArgVtable();
  return arg;
}

NodePointer NodeOf(const grpc_core::ChannelArgs& args) {
  if (!args.GetBool(kEnableArg).value_or(true)) return nullptr;
  const auto* const node = static_cast<const NodePointer*>(args.GetVoidPointer(kNodeArg));
  return node == nullptr ? nullptr : *node;
}

StatusOr<std::vector<std::string>> FabricsOf(const grpc_core::ChannelArgs& args,
                                             const protocol::Node& node) {
  const absl::optional<std::string> narrowed = args.GetOwnedString(kFabricsArg);
  if (!narrowed.has_value() || narrowed->empty()) {
    return Encrypts(args) ? WithoutUncovered(node.fabrics()) : node.fabrics();
  }
  StatusOr<std::vector<std::string>> names = fabric::ParseFabrics(narrowed->c_str());
  if (!names.ok()) return names;
  names->erase(std::remove_if(names->begin(), names->end(),
                              [&](const std::string& name) { return !node.Allows(name); }),
               names->end());
  // "^tcp" names none of those that are left.
  if (Encrypts(args) && narrowed->front() == '^') return WithoutUncovered(std::move(*names));
  return names;
}

}  // namespace ar_grpc
