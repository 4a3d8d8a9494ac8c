// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/platform/logging.h"
#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/protocol/cost_model.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"

namespace ar_grpc {
namespace {

void ToTensorFlowLog(Severity severity, const std::string& line) {
  switch (severity) {
    case Severity::kInfo:
      LOG(INFO) << "AR-gRPC: " << line;
      return;
    case Severity::kWarning:
      LOG(WARNING) << "AR-gRPC: " << line;
      return;
    case Severity::kError:
      LOG(ERROR) << "AR-gRPC: " << line;
      return;
  }
}

StatusOr<std::vector<std::string>> Allowed() {
  return fabric::ParseFabrics(std::getenv("AR_GRPC_FABRICS"));
}

// Those of `allowed` that this machine has; `*shared_memory_lacks` becomes whether one of those
// that it lacks is shared memory.
std::vector<std::string> Usable(const std::vector<std::string>& allowed,
                                bool* shared_memory_lacks) {
  std::vector<std::string> usable;
  *shared_memory_lacks = false;
  for (const std::string& name : allowed) {
    fabric::Context* const context = fabric::Find(name);
    const Status available = context != nullptr ? context->Available() : Status();
    if (available.ok()) {
      usable.push_back(name);
    } else if (name == "shm") {
      // A machine without an adapter is no news; one without shared memory is.
      *shared_memory_lacks = true;
      LOG_FIRST_N(WARNING, 1) << "AR-gRPC: no shared memory: " << available.message();
    }
  }
  return usable;
}

bool PeersReadOver(const std::string& fabric) {
  const fabric::Context* const context = fabric::Find(fabric);
  return context != nullptr && context->capabilities().get;
}

// Over every fabric. Also where all tensors go through the stream: malloc gives the pages of a
// large one back at once, and the faults of the next one take longer than its copies.
void MakeArena(const std::vector<std::string>& usable, bool shared_memory_lacks) {
  const bool peers_read = std::any_of(usable.begin(), usable.end(), PeersReadOver);
  // What refuses shared memory would refuse the arena as well, and one line of the log is enough.
  if (shared_memory_lacks && !peers_read) return;
  // It logs by itself why it could not, and tensors then travel through the stream.
  if (!CpuArena::Activate().ok()) return;
  CpuArena* const arena = CpuArena::Get();
  if (arena != nullptr && peers_read) arena->LetPeersRead();
}

// One for all nodes: what it measures is the machine's.
struct Measured {
  std::shared_ptr<protocol::Selector> selector = std::make_shared<protocol::Selector>();
  // How many forks lay before the process that made it.
  uint32_t fork_count = ForkCount();
};

// Never destroyed, as nodes may be used until the very end.
const Measured& OfThisMachine() {
  static const auto* const measured = new Measured;
  return *measured;
}

std::shared_ptr<protocol::Node> NewNode() {
  protocol::Node::Options options;
  options.selector = OfThisMachine().selector;
  options.fabrics = *Allowed();
  if (const CpuArena* const arena = CpuArena::Get()) options.exports = arena->exports();
  return protocol::Node::Create(std::move(options));
}

}  // namespace

void LogByTensorFlow() { SetLogSink(ToTensorFlowLog); }

tensorflow::Status CheckClient() {
  LogByTensorFlow();
  const auto allowed = Allowed();
  if (!allowed.ok()) return tensorflow::errors::InvalidArgument(allowed.status().message());
  return tensorflow::OkStatus();
}

tensorflow::Status NewServerNode(std::shared_ptr<protocol::Node>* node) {
  TF_RETURN_IF_ERROR(CheckClient());
  bool shared_memory_lacks = false;
  const std::vector<std::string> usable = Usable(*Allowed(), &shared_memory_lacks);
  MakeArena(usable, shared_memory_lacks);
  // Now, not in the first step. A fabric that reaches nobody has no figures.
  OfThisMachine().selector->Prepare(usable);
  *node = NewNode();
  return tensorflow::OkStatus();
}

bool RegisterArenaWith(fabric::Context* context) {
  if (MemoryLockIsLimited()) {
    Log(Severity::kInfo,
        "tensors are registered or copied each time they are written by RDMA, as locked memory is "
        "limited: `ulimit -l unlimited` lifts that");
    return false;
  }
  if (!CpuArena::Activate().ok()) return false;  // it has said why
  CpuArena* const arena = CpuArena::Get();
  if (arena == nullptr) return false;
  arena->LetPeersRead();
  arena->exports()->Prepare(context);
  return true;
}

std::shared_ptr<protocol::Node> SessionNode() {
  // Never destroyed: channels live until the process ends.
  static const auto* const node = new std::shared_ptr<protocol::Node>(NewNode());
  return *node;
}

std::string SchemesText(bool in_arena) {
  // Not in a child of the process that made it: a thread that the child does not have may have held
  // its lock. A process that was forked before there was one has its own.
  const Measured& measured = OfThisMachine();
  return ForkCount() == measured.fork_count ? measured.selector->Print(in_arena) : "";
}

}  // namespace ar_grpc
