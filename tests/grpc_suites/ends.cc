// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "tests/grpc_suites/ends.h"

#include <fcntl.h>
#include <grpc/support/alloc.h>
#include <sys/mman.h>

#include <utility>

#include "src/core/lib/config/core_configuration.h"
#include "src/core/lib/iomgr/closure.h"
#include "src/core/lib/iomgr/exec_ctx.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/fabric/loopback/loopback.h"
#include "third_party/ar_grpc/fabric/ring_connection.h"
#include "third_party/ar_grpc/fabric/shm/shm.h"
#include "third_party/ar_grpc/grpc/ar_endpoint.h"

namespace ar_grpc::testing {
namespace {

using fabric::testing::Pair;
using fabric::testing::Value;

}  // namespace

Pair RingsOf(size_t bytes) {
  fabric::RingConnection::Parts ends[2];
  const auto memory = Value(
      Map(-1, fabric::ConnectionBytes(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS));
  auto doorbells = Value(fabric::NewDoorbells());
  for (int end = 0; end < 2; ++end) {
    ends[end].memory = memory;
    ends[end].ring_bytes = bytes;
    ends[end].end = end == 0 ? fabric::RingEnd::kConnector : fabric::RingEnd::kAcceptor;
    ends[end].doorbell = std::move(doorbells[end]);
  }
  return {std::make_unique<fabric::RingConnection>(std::move(ends[0])),
          std::make_unique<fabric::RingConnection>(std::move(ends[1]))};
}

bool IsFabric(const std::string& name) {
  return name == "loopback" || name == "shm" || name == "rings";
}

Pair ConnectOver(const std::string& fabric) {
  if (fabric == "rings") return RingsOf(fabric::kSmallestRingBytes);
  return fabric::testing::Attach(fabric == "shm" ? fabric::shm::Get() : fabric::loopback::Get());
}

grpc_pollset* Pollset::pollset_ = nullptr;
gpr_mu* Pollset::mu_ = nullptr;

Pollset::Pollset() {
  pollset_ = static_cast<grpc_pollset*>(gpr_zalloc(grpc_pollset_size()));
  grpc_pollset_init(pollset_, &mu_);
}

Pollset::~Pollset() {
  grpc_closure destroyed;
  GRPC_CLOSURE_INIT(
      &destroyed,
      [](void* pollset, grpc_error_handle) {
        grpc_pollset_destroy(static_cast<grpc_pollset*>(pollset));
      },
      pollset_, nullptr);
  gpr_mu_lock(mu_);
  grpc_pollset_shutdown(pollset_, &destroyed);
  gpr_mu_unlock(mu_);
  grpc_core::ExecCtx::Get()->Flush();
  gpr_free(pollset_);
}

grpc_core::ChannelArgs Arguments(size_t slice_size) {
  return grpc_core::CoreConfiguration::Get()
      .channel_args_preconditioning()
      .PreconditionChannelArgs(nullptr)
      .Set(GRPC_ARG_TCP_READ_CHUNK_SIZE, static_cast<int>(slice_size));
}

grpc_endpoint_pair TcpPair(const grpc_core::ChannelArgs& args) {
  return grpc_iomgr_create_endpoint_pair("tcp", const_cast<grpc_channel_args*>(args.ToC().get()));
}

const std::shared_ptr<protocol::Node>& TestNode() {
  static const auto* const node =
      new std::shared_ptr<protocol::Node>(protocol::Node::Create({{"shm", "tcp"}}));
  return *node;
}

grpc_endpoint* NewEnd(protocol::End which, const std::string& fabric,
                      std::unique_ptr<fabric::Connection> connection, grpc_endpoint* tcp,
                      const grpc_core::ChannelArgs& args) {
  const int wake = fcntl(connection->wake_fd(), F_DUPFD_CLOEXEC, 0);
  fabric::testing::Check(wake >= 0, "a descriptor");
  protocol::Link::Description description;
  description.end = which;
  description.peer = TestNode()->id();
  description.address = "the other end";
  description.fabric = fabric;
  auto link = std::make_shared<protocol::Link>(std::move(description), std::move(connection));
  grpc_endpoint* const end =
      CreateEndpoint(TestNode(), std::move(link), tcp, wake, /*interested_parties=*/nullptr, args);
  grpc_endpoint_add_to_pollset(end, Pollset::get());
  return end;
}

Ends NewEnds(const std::string& fabric, const grpc_core::ChannelArgs& args) {
  const grpc_endpoint_pair tcp = TcpPair(args);
  Pair pair = ConnectOver(fabric);
  return {NewEnd(protocol::End::kClient, fabric, std::move(pair.connector), tcp.client, args),
          NewEnd(protocol::End::kServer, fabric, std::move(pair.acceptor), tcp.server, args)};
}

}  // namespace ar_grpc::testing
