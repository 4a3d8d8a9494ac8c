// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A libibverbs whose device fails when it is told to, for AR_IBVERBS_LIB. It is linked with the
// real one, which does everything else.
//
// While the file that REFUSED_WHILE names is there, no queue pair is connected: ibv_modify_qp to a
// connected state fails with the error number of REFUSED_WITH; 0: it says that all is well, and
// nothing gets to the pair, as behind a firewall. SIGUSR2 puts all that are connected into the
// error state.

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>

#include "third_party/ar_grpc/fabric/verbs/abi.h"

namespace {

namespace abi = ar_grpc::fabric::verbs::abi;

// Looked at by the signal's handler.
std::array<std::atomic<abi::QueuePair*>, 1024> pairs;

template <typename Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(
      dlvsym(dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD), name, "IBVERBS_1.1"));
}

int Modify(abi::QueuePair* pair, abi::QueuePairAttributes* attributes, int set) {
  static const auto real =
      Real<int (*)(abi::QueuePair*, abi::QueuePairAttributes*, int)>("ibv_modify_qp");
  return real(pair, attributes, set);
}

void Replace(abi::QueuePair* one, abi::QueuePair* by) {
  for (std::atomic<abi::QueuePair*>& place : pairs) {
    abi::QueuePair* found = one;
    if (place.compare_exchange_strong(found, by)) return;
  }
}

void BreakAll(int) {
  for (std::atomic<abi::QueuePair*>& place : pairs) {
    abi::QueuePair* const pair = place.exchange(nullptr);
    if (pair == nullptr) continue;
    abi::QueuePairAttributes attributes = {};
    attributes.state = abi::kStateError;
    Modify(pair, &attributes, abi::kSetState);
  }
}

}  // namespace

extern "C" {

int ibv_modify_qp(abi::QueuePair* pair, abi::QueuePairAttributes* attributes, int set) {
  const int state = (set & abi::kSetState) != 0 ? attributes->state : 0;
  const bool connects = state == abi::kStateReadyToReceive || state == abi::kStateReadyToSend;
  const char* const refused_while = std::getenv("REFUSED_WHILE");
  if (connects && refused_while != nullptr && access(refused_while, F_OK) == 0) {
    return std::atoi(std::getenv("REFUSED_WITH"));
  }
  static const auto before = signal(SIGUSR2, BreakAll);
  static_cast<void>(before);
  const int error = Modify(pair, attributes, set);
  if (error == 0 && state == abi::kStateReadyToSend) Replace(nullptr, pair);
  return error;
}

int ibv_destroy_qp(abi::QueuePair* pair) {
  static const auto real = Real<int (*)(abi::QueuePair*)>("ibv_destroy_qp");
  Replace(pair, nullptr);
  return real(pair);
}

}  // extern "C"
