// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SYMBOLS_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SYMBOLS_H_

#include <string>

#include "third_party/ar_grpc/base/status.h"

namespace ar_grpc::fabric::verbs {

// A library of rdma-core's that is opened at run time, and its functions by name and version.
class Symbols {
 public:
  // The file that the environment variable names, else `soname`, which is in the package of that
  // name. What goes wrong is in status(), and the later calls then do nothing.
  Symbols(const char* variable, const char* soname, const char* package, const char* version);
  // Closes it, where status() is not kOk.
  ~Symbols();
  Symbols(const Symbols&) = delete;

  template <typename Function>
  void Find(Function* function, const char* name) {
    Find(function, name, version_);
  }
  template <typename Function>
  void Find(Function* function, const char* name, const char* version) {
    *function = reinterpret_cast<Function>(Lookup(name, version));
  }
  // kUnavailable: the library is not there; kUnimplemented: it lacks a function, which it names.
  const Status& status() const { return status_; }

 private:
  void* Lookup(const char* name, const char* version);

  const char* const version_;
  std::string path_;
  void* handle_ = nullptr;
  Status status_;
};

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_SYMBOLS_H_
