// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/mpi/library.h"

#include <dlfcn.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/mpi/abi.h"

namespace ar_grpc::mpi {
namespace {

// The paths of the MPI libraries in this process.
std::vector<std::string> Loaded() {
  std::vector<std::string> found;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* into) {
        if (info->dlpi_name != nullptr && IsMpiLibrary(info->dlpi_name)) {
          static_cast<std::vector<std::string>*>(into)->push_back(info->dlpi_name);
        }
        return 0;
      },
      &found);
  return found;
}

std::string PathOf(void* handle, const std::string& fallback) {
  link_map* map = nullptr;
  if (dlinfo(handle, RTLD_DI_LINKMAP, &map) != 0 || map == nullptr) return fallback;
  return *map->l_name != '\0' ? map->l_name : fallback;
}

template <typename Function>
Function Find(void* handle, const char* name) {
  return reinterpret_cast<Function>(dlsym(handle, name));
}

// By what it is rather than by its name, since AR_MPI_LIB may name it by a link. MPICH 5 has the
// standard's own question in its library of the older interface, too, which then answers -1.
StatusOr<Flavour> FlavourOf(void* handle, const std::string& path) {
  if (dlsym(handle, abi::OpenMpi::kWorld) != nullptr) return Flavour::kOpenMpi;
  const auto version_of = Find<int (*)(char*, int*)>(handle, "MPI_Get_library_version");
  if (version_of == nullptr) {
    return Status(StatusCode::kUnimplemented,
                  path + " is no MPI library (it has no MPI_Get_library_version): correct " +
                      kLibraryVariable);
  }
  int major = -1;
  int minor = -1;
  const auto standard = Find<int (*)(int*, int*)>(handle, "MPI_Abi_get_version");
  if (standard != nullptr && standard(&major, &minor) == abi::kSuccess && major >= 1) {
    return Flavour::kStandard;
  }
  char text[abi::kMostVersionText] = {};
  int length = 0;
  version_of(text, &length);
  text[sizeof(text) - 1] = '\0';
  for (const char* kin : {"MPICH", "Intel(R) MPI", "MVAPICH"}) {
    if (std::strstr(text, kin) != nullptr) return Flavour::kMpich;
  }
  text[strcspn(text, "\n")] = '\0';
  return Status(StatusCode::kUnimplemented,
                path + " is '" + text +
                    "', whose binary interface is not known here: use MPICH 3.4, Open MPI 4, Intel "
                    "MPI 2019 or newer");
}

StatusOr<void*> OpenFirst(const Choice& choice) {
  std::string why;
  for (const std::string& name : choice.candidates) {
    // Not for all to see: Open MPI brings libraries of common names.
    const int flags = RTLD_NOW | RTLD_LOCAL | (choice.loaded ? RTLD_NOLOAD : 0);
    if (void* const handle = dlopen(name.c_str(), flags)) return handle;
    const char* const said = dlerror();
    if (why.empty()) why = said != nullptr ? said : name;
  }
  return Status(StatusCode::kUnavailable, "no MPI library: " + why + " (" + choice.cure + ")");
}

}  // namespace

StatusOr<std::unique_ptr<Library>> OpenLibrary() {
  const auto environment = [](const char* name) -> const char* { return std::getenv(name); };
  StatusOr<Choice> choice = Choose(Loaded(), environment);
  if (!choice.ok()) return choice.status();
  StatusOr<void*> handle = OpenFirst(*choice);
  if (!handle.ok()) return handle.status();
  const char* const named = std::getenv(kLibraryVariable);
  const std::string path = PathOf(*handle, choice->candidates[0]);
  if (choice->loaded && named != nullptr && *named != '\0' &&
      dlopen(named, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD) != *handle) {
    return Status(
        StatusCode::kFailedPrecondition,
        std::string(kLibraryVariable) + " names " + named + ", but " + path +
            " is in this process already, and two MPI libraries do not go together: unset " +
            kLibraryVariable + ", or name the other");
  }
  StatusOr<Flavour> flavour = FlavourOf(*handle, path);
  if (!flavour.ok()) return flavour.status();
  StatusOr<std::unique_ptr<Calls>> calls = Bind(*flavour, *handle, path);
  if (!calls.ok()) return calls.status();
  auto library = std::make_unique<Library>();
  library->path = path;
  library->flavour = *flavour;
  library->calls = std::move(*calls);
  library->version = library->calls->Version();
  return library;
}

}  // namespace ar_grpc::mpi
