// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
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

bool IsUnavailable(const std::string& fabric) {
  fabric::Context* const context = fabric::Find(fabric);
  return context != nullptr && !context->Available().ok();
}

// Over every fabric. Also where all tensors go through the stream: malloc gives the pages of a
// large one back at once, and the faults of the next one take longer than its copies.
void MakeArenaOnce(const std::vector<std::string>& allowed) {
  static std::once_flag once;
  std::call_once(once, [&] {
    // A machine without an adapter is no news; one without shared memory is.
    if (std::find(allowed.begin(), allowed.end(), "shm") != allowed.end()) {
      const Status available = fabric::Find("shm")->Available();
      if (!available.ok()) {
        LOG(WARNING) << "AR-gRPC: no shared memory: " << available.message();
      }
    }
    // It logs by itself why it could not, and tensors then travel through the stream.
    (void)CpuArena::Activate().ok();
  });
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
  MakeArenaOnce(*Allowed());
  // Now, not in the first step. A fabric that reaches nobody has no figures.
  std::vector<std::string> usable = *Allowed();
  usable.erase(std::remove_if(usable.begin(), usable.end(), IsUnavailable), usable.end());
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
  const CpuArena* const arena = CpuArena::Get();
  if (arena != nullptr) arena->exports()->Prepare(context);
  return arena != nullptr;
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
