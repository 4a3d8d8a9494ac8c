// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/shm/shm.h"

#include <cstdlib>
#include <fstream>
#include <utility>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/fabric/shm/connector.h"
#include "third_party/ar_grpc/fabric/shm/listener.h"
#include "third_party/ar_grpc/fabric/shm/memory.h"

namespace ar_grpc::fabric::shm {
namespace {

class ShmContext final : public Context {
 public:
  const char* name() const override { return "shm"; }

  Status Available() override {
    std::ifstream overcommit("/proc/sys/vm/overcommit_memory");
    int mode = 0;
    if (overcommit >> mode && mode == 2) {
      return Status(StatusCode::kUnimplemented,
                    "vm.overcommit_memory is 2: a page of sparse shared memory may be refused when "
                    "it is touched, which would end the process");
    }
    Token token;
    if (!FillRandom(token.data(), token.size())) {
      return Status(StatusCode::kUnimplemented,
                    "getrandom is refused here: without it no peer can prove that it was invited");
    }
    // Tries what every connection and region does.
    return MemfdRegion::Create(1).status();
  }

  StatusOr<std::shared_ptr<Region>> Allocate(size_t size) override {
    StatusOr<std::shared_ptr<MemfdRegion>> region = MemfdRegion::Create(size);
    if (!region.ok()) return region.status();
    return std::shared_ptr<Region>(std::move(*region));
  }

  void Offer(std::shared_ptr<Region> region) override {
    RegionTable::Get().Offer(std::dynamic_pointer_cast<MemfdRegion>(std::move(region)));
  }

  StatusOr<std::unique_ptr<Listener>> Listen() override {
    const char* const directory = std::getenv("AR_GRPC_SHM_DIR");
    return ListenForPeers(directory == nullptr ? "" : directory);
  }

  Status Connect(const std::string& address, const Token& token, int timeout_ms,
                 ConnectDone done) override {
    return ConnectToPeer(address, token, timeout_ms, std::move(done));
  }
};

}  // namespace

Context& Get() {
  static auto* const context = new ShmContext;
  return *context;
}

}  // namespace ar_grpc::fabric::shm
