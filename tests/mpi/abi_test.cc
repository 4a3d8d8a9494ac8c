// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// mpi/abi.h says what a library's own mpi.h says. Compiled once for each binary interface, with the
// folder of its header and AR_MPI_ABI, the name of what we declare of it; that it compiles is the
// test.

#include "third_party/ar_grpc/mpi/abi.h"

#include <mpi.h>

#include <cstddef>
#include <type_traits>

#include "tests/verbs/same_abi.h"

using Abi = ar_grpc::mpi::abi::AR_MPI_ABI;
namespace abi {
using Ours = Abi::Status;
using Calls = ar_grpc::mpi::abi::Functions<Abi>;
constexpr int kSuccess = ar_grpc::mpi::abi::kSuccess;
constexpr int kAnySource = Abi::kAnySource;
constexpr int kAnyTag = Abi::kAnyTag;
constexpr int kThreadMultiple = Abi::kThreadMultiple;
constexpr int kTagUpperBound = Abi::kTagUpperBound;
constexpr int kTruncated = Abi::kTruncated;
}  // namespace abi

SAME_SIZE(Ours, MPI_Status);
SAME_PLACE(Ours, source, MPI_Status, MPI_SOURCE);
SAME_PLACE(Ours, tag, MPI_Status, MPI_TAG);
SAME_PLACE(Ours, error, MPI_Status, MPI_ERROR);
SAME_NUMBER(kSuccess, MPI_SUCCESS);
SAME_NUMBER(kAnySource, MPI_ANY_SOURCE);
SAME_NUMBER(kAnyTag, MPI_ANY_TAG);
SAME_NUMBER(kThreadMultiple, MPI_THREAD_MULTIPLE);
SAME_NUMBER(kTagUpperBound, MPI_TAG_UB);
SAME_NUMBER(kTruncated, MPI_ERR_TRUNCATE);
static_assert(ar_grpc::mpi::abi::kMostErrorText >= MPI_MAX_ERROR_STRING);
static_assert(ar_grpc::mpi::abi::kMostVersionText >= MPI_MAX_LIBRARY_VERSION_STRING);

static_assert(sizeof(Abi::Handle) == sizeof(MPI_Comm));
static_assert(sizeof(Abi::Handle) == sizeof(MPI_Datatype));
static_assert(sizeof(Abi::Handle) == sizeof(MPI_Request));
static_assert(sizeof(Abi::Handle) == sizeof(MPI_Message));
static_assert(sizeof(Abi::Handle) == sizeof(MPI_Errhandler));

#define SAME_FUNCTION(name) \
  static_assert(SameCall<decltype(abi::Calls::name), decltype(&MPI_##name)>::value, #name)
SAME_FUNCTION(Get_library_version);
SAME_FUNCTION(Initialized);
SAME_FUNCTION(Finalized);
SAME_FUNCTION(Init_thread);
SAME_FUNCTION(Query_thread);
SAME_FUNCTION(Finalize);
SAME_FUNCTION(Comm_rank);
SAME_FUNCTION(Comm_size);
SAME_FUNCTION(Comm_idup);
SAME_FUNCTION(Comm_set_errhandler);
SAME_FUNCTION(Comm_get_attr);
SAME_FUNCTION(Comm_create_keyval);
SAME_FUNCTION(Comm_set_attr);
SAME_FUNCTION(Ibcast);
SAME_FUNCTION(Issend);
SAME_FUNCTION(Improbe);
SAME_FUNCTION(Imrecv);
SAME_FUNCTION(Test);
SAME_FUNCTION(Get_count);
SAME_FUNCTION(Error_class);
SAME_FUNCTION(Error_string);

// Whether a handle of theirs is what we take for it.
bool Same(intptr_t ours, const void* theirs) { return reinterpret_cast<void*>(ours) == theirs; }
constexpr bool Same(int ours, int theirs) { return ours == theirs; }
template <size_t size, typename Theirs>
bool Same(const char (&)[size], Theirs) {
  return true;  // a symbol, which the library has or has not
}

int main() {
  return Same(Abi::kWorld, MPI_COMM_WORLD) && Same(Abi::kSelf, MPI_COMM_SELF) &&
                 Same(Abi::kByte, MPI_BYTE) && Same(Abi::kErrorsReturn, MPI_ERRORS_RETURN)
             ? 0
             : 1;
}
