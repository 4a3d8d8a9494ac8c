// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/mpi/choice.h"

#include <initializer_list>

namespace ar_grpc::mpi {
namespace {

const std::vector<std::string>& OpenMpiNames() {
  static const auto* const names = new std::vector<std::string>{"libmpi.so.40"};
  return *names;
}

// MPICH 5.0.1 built its standard library as version 0, later ones as 1.
const std::vector<std::string>& StandardNames() {
  static const auto* const names =
      new std::vector<std::string>{"libmpi_abi.so.1", "libmpi_abi.so.0", "libmpi_abi.so"};
  return *names;
}

// Debian gives it a name of its own.
const std::vector<std::string>& MpichNames() {
  static const auto* const names = new std::vector<std::string>{"libmpi.so.12", "libmpich.so.12"};
  return *names;
}

std::vector<std::string> Joined(std::initializer_list<const std::vector<std::string>*> lists) {
  std::vector<std::string> all;
  for (const auto* list : lists) all.insert(all.end(), list->begin(), list->end());
  return all;
}

bool AnySet(const Environment& environment, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (environment(name) != nullptr) return true;
  }
  return false;
}

}  // namespace

Launcher LauncherOf(const Environment& environment) {
  if (AnySet(environment, {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"})) {
    return Launcher::kOpenMpi;
  }
  // Hydra's, and what Slurm, PALS and Flux set for it.
  if (AnySet(environment, {"PMI_RANK", "PMI_FD", "PMI_SIZE", "HYDI_CONTROL_FD", "PALS_RANKID"})) {
    return Launcher::kMpich;
  }
  // PRRTE or Slurm, for either.
  if (AnySet(environment, {"PMIX_RANK", "PMIX_NAMESPACE"})) return Launcher::kOther;
  return Launcher::kNone;
}

bool IsMpiLibrary(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  for (const char* stem : {"libmpi.so", "libmpich.so", "libmpi_abi.so"}) {
    const std::string start = stem;
    if (name.compare(0, start.size(), start) != 0) continue;
    if (name.size() == start.size() || name[start.size()] == '.') return true;
  }
  return false;
}

StatusOr<Choice> Choose(const std::vector<std::string>& loaded, const Environment& environment) {
  if (loaded.size() > 1) {
    return Status(StatusCode::kFailedPrecondition,
                  "two MPI libraries are in this process, " + loaded[0] + " and " + loaded[1] +
                      ": import modules of one MPI only, the one whose mpirun starts the program");
  }
  if (!loaded.empty()) return Choice{loaded, "", true};
  const char* const named = environment(kLibraryVariable);
  if (named != nullptr && *named != '\0') {
    return Choice{{named}, std::string("correct ") + kLibraryVariable + ", or unset it", false};
  }
  switch (LauncherOf(environment)) {
    case Launcher::kOpenMpi:
      return Choice{Joined({&OpenMpiNames(), &StandardNames()}),
                    std::string("Open MPI's mpirun has started this process: install its library "
                                "(libopenmpi3), or name it in ") +
                        kLibraryVariable,
                    false};
    case Launcher::kMpich:
      // Slurm's old interface is Open MPI's, too.
      return Choice{Joined({&StandardNames(), &MpichNames(), &OpenMpiNames()}),
                    std::string("MPICH's mpirun has started this process: install its library "
                                "(libmpich12), or name it in ") +
                        kLibraryVariable,
                    false};
    case Launcher::kOther:
    case Launcher::kNone:
      break;
  }
  return Choice{Joined({&OpenMpiNames(), &StandardNames(), &MpichNames()}),
                std::string("install MPICH (libmpich12) or Open MPI (libopenmpi3), or name the "
                            "library in ") +
                    kLibraryVariable,
                false};
}

}  // namespace ar_grpc::mpi
