// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_CHOICE_H_
#define THIRD_PARTY_AR_GRPC_MPI_CHOICE_H_

#include <functional>
#include <string>
#include <vector>

#include "third_party/ar_grpc/base/status.h"

// Which MPI library a process uses: one that does not belong to the launcher that started the
// process knows nothing of the other ranks, and two in one process end it. Pure functions.
namespace ar_grpc::mpi {

// The environment variable that names the library, by a path or as the loader finds it.
inline constexpr char kLibraryVariable[] = "AR_MPI_LIB";

// A variable's value; null: it is not set.
using Environment = std::function<const char*(const char* name)>;

// What started this process, as its environment tells.
enum class Launcher { kNone, kOpenMpi, kMpich, kOther };
Launcher LauncherOf(const Environment& environment);

// Whether a file's name is that of an MPI library: libmpi.so.40, libmpich.so.12, libmpi_abi.so.1, …
// Libraries for other languages (libmpi_cxx.so) are none.
bool IsMpiLibrary(const std::string& path);

struct Choice {
  // To be opened in this order; the first that is there counts.
  std::vector<std::string> candidates;
  // Where none is there: what to install.
  std::string cure;
  // It is in the process already.
  bool loaded = false;
};

// `loaded` are the MPI libraries of the process, each once. kFailedPrecondition: there are two.
StatusOr<Choice> Choose(const std::vector<std::string>& loaded, const Environment& environment);

}  // namespace ar_grpc::mpi

#endif  // THIRD_PARTY_AR_GRPC_MPI_CHOICE_H_
