// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/base/log.h"

#include <atomic>
#include <cstdio>

namespace ar_grpc {
namespace {

void ToStandardError(Severity severity, const std::string& line) {
  const char letter = severity == Severity::kInfo      ? 'I'
                      : severity == Severity::kWarning ? 'W'
                                                       : 'E';
  std::fprintf(stderr, "%c AR-gRPC: %s\n", letter, line.c_str());
}

std::atomic<void (*)(Severity, const std::string&)> log_sink{ToStandardError};

}  // namespace

void Log(Severity severity, const std::string& line) { log_sink.load()(severity, line); }

void SetLogSink(void (*sink)(Severity severity, const std::string& line)) { log_sink.store(sink); }

}  // namespace ar_grpc
