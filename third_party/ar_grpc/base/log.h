// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_BASE_LOG_H_
#define THIRD_PARTY_AR_GRPC_BASE_LOG_H_

#include <string>

namespace ar_grpc {

enum class Severity { kInfo, kWarning, kError };

// One line for people; control characters are written as "\x0a". Goes to standard error until
// SetLogSink was called.
void Log(Severity severity, const std::string& line);
// `sink` must be callable from any thread for the life of the process.
void SetLogSink(void (*sink)(Severity severity, const std::string& line));

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_BASE_LOG_H_
