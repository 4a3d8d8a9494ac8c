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

// Some lines have a peer's words in them: none of those may begin a line that looks like ours, or
// tell a terminal to do something.
std::string OneLine(const std::string& line) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string safe;
  safe.reserve(line.size());
  for (const char each : line) {
    const auto byte = static_cast<unsigned char>(each);
    if (byte >= 0x20 && byte != 0x7f) {
      safe += each;
    } else {
      safe += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return safe;
}

}  // namespace

void Log(Severity severity, const std::string& line) { log_sink.load()(severity, OneLine(line)); }

void SetLogSink(void (*sink)(Severity severity, const std::string& line)) { log_sink.store(sink); }

}  // namespace ar_grpc
