// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_GRPC_SUITES_ENDS_H_
#define TESTS_GRPC_SUITES_ENDS_H_

#include <grpc/support/port_platform.h>

#include <memory>
#include <string>

#include "src/core/lib/channel/channel_args.h"
#include "src/core/lib/iomgr/endpoint.h"
#include "src/core/lib/iomgr/endpoint_pair.h"
#include "src/core/lib/iomgr/pollset.h"
#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/protocol/link.h"
#include "third_party/ar_grpc/protocol/node.h"

// Both ends of an AR endpoint in one process, as a handshake would have left them.
namespace ar_grpc::testing {

// Where the ends meet: "loopback", "shm", or "rings", which is loopback with the smallest rings, so
// that nearly every write finds them full.
bool IsFabric(const std::string& name);
fabric::testing::Pair ConnectOver(const std::string& fabric);
// Two ends within this process, with rings of so many bytes.
fabric::testing::Pair RingsOf(size_t bytes);

// What polls the endpoints; one at a time in a process, while gRPC is initialized.
class Pollset {
 public:
  Pollset();
  // Needs an ExecCtx, as all of these do.
  ~Pollset();
  static grpc_pollset* get() { return pollset_; }
  static gpr_mu* mu() { return mu_; }

 private:
  static grpc_pollset* pollset_;
  static gpr_mu* mu_;
};

// `slice_size` is what TCP below reads at once; over a fabric reads take what there is.
grpc_core::ChannelArgs Arguments(size_t slice_size = 8192);
grpc_endpoint_pair TcpPair(const grpc_core::ChannelArgs& args);

// What all ends here are links of.
const std::shared_ptr<protocol::Node>& TestNode();

// An endpoint over `connection`, polled. Takes `tcp`.
grpc_endpoint* NewEnd(protocol::End which, const std::string& fabric,
                      std::unique_ptr<fabric::Connection> connection, grpc_endpoint* tcp,
                      const grpc_core::ChannelArgs& args);

struct Ends {
  grpc_endpoint* client;
  grpc_endpoint* server;
};
Ends NewEnds(const std::string& fabric, const grpc_core::ChannelArgs& args = Arguments());

}  // namespace ar_grpc::testing

#endif  // TESTS_GRPC_SUITES_ENDS_H_
