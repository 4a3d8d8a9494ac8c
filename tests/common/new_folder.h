// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_COMMON_NEW_FOLDER_H_
#define TESTS_COMMON_NEW_FOLDER_H_

#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace ar_grpc::testing {

// An empty folder that is the caller's, who removes it.
inline std::string NewFolder() {
  std::string folder = std::filesystem::temp_directory_path() / "ar-grpc-test.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::perror("mkdtemp");
    std::abort();
  }
  return folder;
}

}  // namespace ar_grpc::testing

#endif  // TESTS_COMMON_NEW_FOLDER_H_
