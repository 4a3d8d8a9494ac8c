// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_LIBRARY_H_
#define THIRD_PARTY_AR_GRPC_MPI_LIBRARY_H_

#include <memory>
#include <string>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/mpi/calls.h"
#include "third_party/ar_grpc/mpi/choice.h"

namespace ar_grpc::mpi {

// An MPI library that was opened at run time. It stays open: MPI cannot be unloaded.
struct Library {
  std::string path;     // as the loader knows it
  std::string version;  // as it says of itself, such as "Open MPI v4.1.4"
  Flavour flavour = Flavour::kStandard;
  std::unique_ptr<Calls> calls;
};

// Opens what Choose gives. Its text names the thing and the cure: kUnavailable where there is no
// library, kUnimplemented where it is none of MPI's or of an interface that is not known here,
// kFailedPrecondition where there are two.
StatusOr<std::unique_ptr<Library>> OpenLibrary();

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_LIBRARY_H_
