// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_VERBS_LIBRARY_TO_WRAP_H_
#define TESTS_VERBS_LIBRARY_TO_WRAP_H_

#include "tests/verbs/pair.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"
#include "third_party/ar_grpc/fabric/verbs/rdmacm_library.h"

// The tables of functions that the fabric calls, to be wrapped before any device is opened. The
// fabric hands them out as constants, but made them as objects that can be changed.
namespace ar_grpc::fabric::verbs::testing {

inline Library* LibraryToWrap() { return const_cast<Library*>(Value(LoadLibrary())); }
inline RdmacmLibrary* RdmacmToWrap() { return const_cast<RdmacmLibrary*>(Value(LoadRdmacm())); }

}  // namespace ar_grpc::fabric::verbs::testing

#endif  // TESTS_VERBS_LIBRARY_TO_WRAP_H_
