// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A libibverbs whose device connects no queue pair, for AR_IBVERBS_LIB: while the file that
// REFUSED_WHILE names is there, ibv_modify_qp to a connected state fails with the error number of
// REFUSED_WITH; 0: it says that all is well, and nothing gets to the pair, as behind a firewall.
// It is linked with the real one, which does everything else.

#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>

#include "third_party/ar_grpc/fabric/verbs/abi.h"

namespace abi = ar_grpc::fabric::verbs::abi;

extern "C" int ibv_modify_qp(abi::QueuePair* pair, abi::QueuePairAttributes* attributes, int set) {
  static const auto real = reinterpret_cast<decltype(&ibv_modify_qp)>(
      dlvsym(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD), "ibv_modify_qp", "IBVERBS_1.1"));
  const bool connects =
      (set & abi::kSetState) != 0 && (attributes->state == abi::kStateReadyToReceive ||
                                      attributes->state == abi::kStateReadyToSend);
  if (connects && access(std::getenv("REFUSED_WHILE"), F_OK) == 0) {
    return std::atoi(std::getenv("REFUSED_WITH"));
  }
  return real(pair, attributes, set);
}
