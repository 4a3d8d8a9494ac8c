// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/symbols.h"

#include <dlfcn.h>

#include <cstdlib>

namespace ar_grpc::fabric::verbs {

Symbols::Symbols(const char* variable, const char* soname, const char* package, const char* version)
    : version_(version) {
  const char* const named = std::getenv(variable);
  path_ = named != nullptr && *named != '\0' ? named : soname;
  handle_ = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ != nullptr) return;
  const char* const why = dlerror();
  status_ = Status(StatusCode::kUnavailable, std::string("no RDMA library: ") +
                                                 (why != nullptr ? why : path_) + " (install " +
                                                 package + ", or name it in " + variable + ")");
}

Symbols::~Symbols() {
  if (handle_ != nullptr && !status_.ok()) dlclose(handle_);
}

void* Symbols::Lookup(const char* name, const char* version) {
  if (!status_.ok()) return nullptr;
  void* const found = dlvsym(handle_, name, version);
  if (found == nullptr) {
    status_ = Status(StatusCode::kUnimplemented, path_ + " has no " + name + " of version " +
                                                     version + ": install rdma-core 32 or newer");
  }
  return found;
}

}  // namespace ar_grpc::fabric::verbs
