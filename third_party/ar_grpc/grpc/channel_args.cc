// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/channel_args.h"

#include <algorithm>

#include "src/core/lib/gpr/useful.h"
#include "third_party/ar_grpc/fabric/registry.h"

namespace ar_grpc {
namespace {

using NodePointer = std::shared_ptr<protocol::Node>;

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
  if (!narrowed.has_value() || narrowed->empty()) return node.fabrics();
  StatusOr<std::vector<std::string>> names = fabric::ParseFabrics(narrowed->c_str());
  if (!names.ok()) return names;
  names->erase(std::remove_if(names->begin(), names->end(),
                              [&](const std::string& name) { return !node.Allows(name); }),
               names->end());
  return names;
}

}  // namespace ar_grpc
