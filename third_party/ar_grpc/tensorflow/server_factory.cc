// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Registers the server protocols, and says what keeps a server from starting.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "tensorflow/core/distributed_runtime/server_lib.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/protobuf/tensorflow_server.pb.h"
#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/mpi/channel.h"
#include "third_party/ar_grpc/tensorflow/ar_server.h"
#include "third_party/ar_grpc/tensorflow/mpi_tensor_channel.h"
#include "third_party/ar_grpc/tensorflow/protocol_names.h"
#include "third_party/ar_grpc/tensorflow/runtime.h"
#include "third_party/ar_grpc/tensorflow/verbs_tensor_channel.h"

namespace ar_grpc {
namespace {

// Makes the servers of one protocol.
class ProtocolFactory final : public tensorflow::ServerFactory {
 public:
  // What keeps a server from starting, before anything is made.
  using Check = tensorflow::Status (*)(const tensorflow::ServerDef& server_def);
  // Makes a server that is not initialized yet.
  using Make = tensorflow::Status (*)(const tensorflow::ServerDef& server_def,
                                      std::unique_ptr<TensorServer>* server);

  ProtocolFactory(absl::string_view protocol, Check check, Make make)
      : protocol_(protocol), check_(check), make_(make) {}

  bool AcceptsOptions(const tensorflow::ServerDef& server_def) override {
    return server_def.protocol() == protocol_;
  }

  tensorflow::Status NewServer(const tensorflow::ServerDef& server_def, const Options& options,
                               std::unique_ptr<tensorflow::ServerInterface>* out_server) override {
    std::unique_ptr<TensorServer> server;
    TF_RETURN_IF_ERROR(make_(server_def, &server));
    TF_RETURN_IF_ERROR(server->InitFor(options.local_device_mgr));
    *out_server = std::move(server);
    return tensorflow::OkStatus();
  }

  tensorflow::Status CheckServer(const tensorflow::ServerDef& server_def) const {
    return check_(server_def);
  }

 private:
  const absl::string_view protocol_;
  const Check check_;
  const Make make_;
};

tensorflow::Status CheckArServer(const tensorflow::ServerDef&) { return CheckClient(); }

tensorflow::Status MakeArServer(const tensorflow::ServerDef& server_def,
                                std::unique_ptr<TensorServer>* server) {
  std::shared_ptr<protocol::Node> node;
  TF_RETURN_IF_ERROR(NewServerNode(&node));
  *server = std::make_unique<ArServer>(server_def, std::move(node));
  return tensorflow::OkStatus();
}

int TasksOf(const tensorflow::ServerDef& server_def) {
  int tasks = 0;
  for (const tensorflow::JobDef& job : server_def.cluster().job()) tasks += job.tasks_size();
  return tasks;
}

// Starts the process's MPI, and waits for the other ranks to do so.
StatusOr<mpi::Channel*> MpiChannelFor(const tensorflow::ServerDef& server_def) {
  LogByTensorFlow();
  const StatusOr<mpi::Channel*> channel = mpi::Channel::Get();
  if (!channel.ok()) return channel.status();
  const Status enough = (*channel)->Enough(TasksOf(server_def));
  if (!enough.ok()) return enough;
  return *channel;
}

tensorflow::Status CheckMpiServer(const tensorflow::ServerDef& server_def) {
  return ToTensorFlow(MpiChannelFor(server_def).status());
}

tensorflow::Status MakeMpiServer(const tensorflow::ServerDef& server_def,
                                 std::unique_ptr<TensorServer>* server) {
  const StatusOr<mpi::Channel*> channel = MpiChannelFor(server_def);
  if (!channel.ok()) return ToTensorFlow(channel.status());
  *server =
      std::make_unique<TensorServer>(server_def, std::make_shared<MpiTensorChannel>(*channel));
  return tensorflow::OkStatus();
}

// Opens the process's RDMA device.
StatusOr<fabric::Context*> VerbsForServer() {
  LogByTensorFlow();
  fabric::Context* const context = fabric::Find("verbs");
  const Status available = context->Available();
  if (available.ok()) return context;
  return Status(StatusCode::kFailedPrecondition,
                "grpc+verbs needs an RDMA device that can be used: " + available.message());
}

tensorflow::Status CheckVerbsServer(const tensorflow::ServerDef&) {
  return ToTensorFlow(VerbsForServer().status());
}

tensorflow::Status MakeVerbsServer(const tensorflow::ServerDef& server_def,
                                   std::unique_ptr<TensorServer>* server) {
  const StatusOr<fabric::Context*> verbs = VerbsForServer();
  if (!verbs.ok()) return ToTensorFlow(verbs.status());
  *server = std::make_unique<TensorServer>(
      server_def, std::make_shared<VerbsTensorChannel>(*verbs, RegisterArenaWith(*verbs)));
  return tensorflow::OkStatus();
}

// The registry owns its factories for the life of the process.
const bool registered = [] {
  const auto add = [](const char* name, absl::string_view protocol, ProtocolFactory::Check check,
                      ProtocolFactory::Make make) {
    tensorflow::ServerFactory::Register(name, new ProtocolFactory(protocol, check, make));
  };
  add("AR_GRPC_SERVER", kArProtocol, CheckArServer, MakeArServer);
  add("AR_GRPC_MPI_SERVER", kMpiProtocol, CheckMpiServer, MakeMpiServer);
  add("AR_GRPC_VERBS_SERVER", kVerbsProtocol, CheckVerbsServer, MakeVerbsServer);
  return true;
}();

tensorflow::Status CheckServer(const tensorflow::ServerDef& server_def) {
  tensorflow::ServerFactory* factory = nullptr;
  TF_RETURN_IF_ERROR(tensorflow::ServerFactory::GetFactory(server_def, &factory));
  const auto* const ours = dynamic_cast<const ProtocolFactory*>(factory);
  return ours == nullptr ? tensorflow::OkStatus() : ours->CheckServer(server_def);
}

}  // namespace
}  // namespace ar_grpc

// What keeps a server of this ServerDef, `size` bytes long, from starting: the code of a Status, 0
// for nothing, and its message in `why`, which has `room` bytes, cut off where it is longer.
extern "C" __attribute__((visibility("default"))) int ar_grpc_check_server(const char* server_def,
                                                                           size_t size, char* why,
                                                                           size_t room) {
  tensorflow::ServerDef parsed;
  const tensorflow::Status status =
      parsed.ParseFromArray(server_def, static_cast<int>(size))
          ? ar_grpc::CheckServer(parsed)
          : tensorflow::errors::InvalidArgument("these bytes are no ServerDef");
  const std::string message(status.message());
  const size_t fits = std::min(message.size(), room - 1);
  std::memcpy(why, message.data(), fits);
  why[fits] = '\0';
  return static_cast<int>(status.code());
}
