// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Counts the messages and bytes that a process receives, by MPI's profiling interface (MPI 4.1,
// chapter 15): every MPI_X can be replaced by one that calls PMPI_X. It is linked to an MPI library
// and opened in its place.
//
// Handles are an int or a pointer, as the MPI has it: either goes through a register unchanged.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

struct Counts {
  std::atomic<uint64_t> messages;
  std::atomic<uint64_t> bytes;
};

// In a file that others read while this process runs: $ARTF_MPI_COUNTS/count-PID.
Counts* Mapped() {
  static Counts* const counts = [] {
    const char* const folder = std::getenv("ARTF_MPI_COUNTS");
    if (folder == nullptr) std::abort();
    const std::string path = std::string(folder) + "/count-" + std::to_string(getpid());
    const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof(Counts)) != 0) std::abort();
    void* const at = mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (at == MAP_FAILED) std::abort();
    close(file);
    return static_cast<Counts*>(at);
  }();
  return counts;
}

}  // namespace

extern "C" {

int PMPI_Imrecv(void* bytes, int count, void* type, void* message, void* request);

// The channel receives what it has probed, so `count` is the message's size; its type is a byte.
int MPI_Imrecv(void* bytes, int count, void* type, void* message, void* request) {
  Mapped()->messages += 1;
  Mapped()->bytes += static_cast<uint64_t>(count);
  return PMPI_Imrecv(bytes, count, type, message, request);
}

}  // extern "C"
