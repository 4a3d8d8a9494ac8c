// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_TENSORFLOW_ABORTED_RENDEZVOUS_H_
#define THIRD_PARTY_AR_GRPC_TENSORFLOW_ABORTED_RENDEZVOUS_H_

namespace ar_grpc {

// Lets go of the aborted rendezvous that nobody can find any more. `LocalRendezvous` keeps each one
// that was ever aborted, for a RecvTensor that asks later; one whose step was cleaned up is in no
// table, and where no executor refers to it either, none can ask. It goes at the first call half a
// second later, as cancelled receives may still hold its address. Thread-safe.
void ReleaseAbortedRendezvous();

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_TENSORFLOW_ABORTED_RENDEZVOUS_H_
