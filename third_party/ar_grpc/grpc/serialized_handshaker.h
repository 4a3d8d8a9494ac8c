// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_GRPC_SERIALIZED_HANDSHAKER_H_
#define THIRD_PARTY_AR_GRPC_GRPC_SERIALIZED_HANDSHAKER_H_

#include <grpc/support/port_platform.h>

#include <functional>
#include <utility>

#include "src/core/lib/gprpp/ref_counted_ptr.h"
#include "src/core/lib/gprpp/work_serializer.h"
#include "src/core/lib/iomgr/closure.h"
#include "src/core/lib/iomgr/error.h"
#include "src/core/lib/transport/handshaker.h"

namespace ar_grpc {

// A handshaker whose work runs one piece after another, without a lock held: a call of gRPC's or of
// a fabric's may come back inline, and finds its turn behind the work that made it.
template <typename Derived>
class SerializedHandshaker : public grpc_core::Handshaker {
 protected:
  grpc_core::RefCountedPtr<Derived> Self() {
    return grpc_core::RefCountedPtr<Derived>(static_cast<Derived*>(Ref().release()));
  }

  // Runs `work`, here or in the thread that is at work; the handshaker lives until then.
  void InTurn(std::function<void(Derived*)> work) {
    serializer_.Run([self = Self(), work = std::move(work)] { work(self.get()); }, DEBUG_LOCATION);
  }

  // A closure that runs `kMember` in its turn. It takes over a reference, which whoever starts the
  // operation takes before (Ref().release()).
  template <void (Derived::*kMember)(grpc_error_handle)>
  void Init(grpc_closure* closure) {
    GRPC_CLOSURE_INIT(
        closure,
        [](void* arg, grpc_error_handle error) {
          grpc_core::RefCountedPtr<Derived> self(static_cast<Derived*>(arg));
          self->InTurn([error](Derived* handshaker) { (handshaker->*kMember)(error); });
        },
        static_cast<Derived*>(this), nullptr);
  }

 private:
  grpc_core::WorkSerializer serializer_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_GRPC_SERIALIZED_HANDSHAKER_H_
