// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_RUNTIME_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_RUNTIME_H_

#include <memory>
#include <string>

#include "tensorflow/core/platform/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/protocol/node.h"

namespace ar_grpc {

// A node for a new server. The first one of the process also makes the tensor arena, which is the
// process's because TensorFlow's allocator is. InvalidArgument names a variable of the environment
// whose value cannot be used.
tensorflow::Status NewServerNode(std::shared_ptr<protocol::Node>* node);

// Makes the arena, too, where there is none, and has what it hands out registered with `context`:
// true. Not where this process may lock only so much memory, which others cannot do without.
bool RegisterArenaWith(fabric::Context* context);

// InvalidArgument as above, for a session.
tensorflow::Status CheckClient();

// What the layers below have to say goes to TensorFlow's log from now on.
void LogByTensorFlow();

// The table of schemes that this process uses for tensors in its arena, or for those elsewhere, for
// people and tools; measures where nothing was yet.
std::string SchemesText(bool in_arena);

// The node of all sessions of this process. CheckClient must have been OK.
std::shared_ptr<protocol::Node> SessionNode();

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_RUNTIME_H_
