// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_MPI_ABI_H_
#define THIRD_PARTY_AR_GRPC_MPI_ABI_H_

#include <cstddef>
#include <cstdint>

// What three binary interfaces of MPI say of the same names, by our own declarations: no header of
// MPI's is needed to compile, and one program runs with each of them. tests/mpi/abi_test.cc
// compares these with the headers.
namespace ar_grpc::mpi::abi {

inline constexpr int kSuccess = 0;
inline constexpr size_t kMostErrorText = 512;
inline constexpr size_t kMostVersionText = 8192;

// The standard one of MPI 5 (chapter 20), of libmpi_abi.so: handles are pointers, and constants.
struct Standard {
  using Handle = void*;
  struct Status {
    int source;
    int tag;
    int error;
    int internal[5];
  };
  static constexpr intptr_t kWorld = 0x101;
  static constexpr intptr_t kSelf = 0x102;
  static constexpr intptr_t kByte = 0x247;
  static constexpr intptr_t kErrorsReturn = 0x143;
  static constexpr int kAnySource = -1;
  static constexpr int kAnyTag = -2;
  static constexpr int kThreadMultiple = 4096;
  static constexpr int kTagUpperBound = 501;
  static constexpr int kTruncated = 15;
};

// Open MPI's own, of libmpi.so.40 (versions 3 to 5): handles are the addresses of its variables.
struct OpenMpi {
  using Handle = void*;
  struct Status {
    int source;
    int tag;
    int error;
    int cancelled;
    size_t bytes;
  };
  static constexpr char kWorld[] = "ompi_mpi_comm_world";
  static constexpr char kSelf[] = "ompi_mpi_comm_self";
  static constexpr char kByte[] = "ompi_mpi_byte";
  static constexpr char kErrorsReturn[] = "ompi_mpi_errors_return";
  static constexpr int kAnySource = -1;
  static constexpr int kAnyTag = -1;
  static constexpr int kThreadMultiple = 3;
  static constexpr int kTagUpperBound = 0;
  static constexpr int kTruncated = 15;
};

// MPICH's own, of libmpi.so.12 (3.4 to 5, Intel MPI, MVAPICH, Cray's): handles are numbers.
struct Mpich {
  using Handle = int;
  struct Status {
    int count_low;
    int count_high_and_cancelled;
    int source;
    int tag;
    int error;
  };
  static constexpr int kWorld = 0x44000000;
  static constexpr int kSelf = 0x44000001;
  static constexpr int kByte = 0x4c00010d;
  static constexpr int kErrorsReturn = 0x54000001;
  static constexpr int kAnySource = -2;
  static constexpr int kAnyTag = -1;
  static constexpr int kThreadMultiple = 3;
  static constexpr int kTagUpperBound = 0x64400001;
  static constexpr int kTruncated = 14;
};

// The functions that we call, by their names without MPI_ and as all three declare them.
template <typename Abi>
struct Functions {
  using Handle = typename Abi::Handle;
  using Status = typename Abi::Status;

  int (*Get_library_version)(char* text, int* length);
  int (*Initialized)(int* flag);
  int (*Finalized)(int* flag);
  int (*Init_thread)(int* argc, char*** argv, int wanted, int* provided);
  int (*Query_thread)(int* provided);
  int (*Finalize)();
  int (*Comm_rank)(Handle communicator, int* rank);
  int (*Comm_size)(Handle communicator, int* size);
  int (*Comm_idup)(Handle communicator, Handle* copy, Handle* request);
  int (*Comm_set_errhandler)(Handle communicator, Handle handler);
  int (*Comm_get_attr)(Handle communicator, int key, void* value, int* flag);
  int (*Comm_create_keyval)(int (*copy)(Handle, int, void*, void*, void*, int*),
                            int (*gone)(Handle, int, void*, void*), int* key, void* extra);
  int (*Comm_set_attr)(Handle communicator, int key, void* value);
  int (*Ibcast)(void* bytes, int count, Handle type, int root, Handle communicator,
                Handle* request);
  int (*Issend)(const void* bytes, int count, Handle type, int rank, int tag, Handle communicator,
                Handle* request);
  int (*Improbe)(int rank, int tag, Handle communicator, int* flag, Handle* message,
                 Status* status);
  int (*Imrecv)(void* bytes, int count, Handle type, Handle* message, Handle* request);
  int (*Test)(Handle* request, int* ended, Status* status);
  int (*Get_count)(const Status* status, Handle type, int* count);
  int (*Error_class)(int code, int* error_class);
  int (*Error_string)(int code, char* text, int* length);
};

}  // namespace ar_grpc::mpi::abi

#endif  // THIRD_PARTY_AR_GRPC_MPI_ABI_H_
