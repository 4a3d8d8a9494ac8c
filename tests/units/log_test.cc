// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A line of the log is one line, whatever a peer says that is part of it.

#include "third_party/ar_grpc/base/log.h"

#include <string>

#include "tests/conformance/testing.h"

namespace {

using ar_grpc::Log;
using ar_grpc::Severity;
using ar_grpc::fabric::testing::Check;

std::string logged;

void ALineStaysOne() {
  ar_grpc::SetLogSink([](Severity, const std::string& line) { logged = line; });
  Log(Severity::kInfo, "10.0.0.1 says: Größe 3 \\ ok");
  Check(logged == "10.0.0.1 says: Größe 3 \\ ok", "plain text as it is");
  Log(Severity::kWarning, std::string("says: no\nE AR-gRPC: forged\r\x1b[2J\x7f\0.", 34));
  Check(logged == "says: no\\x0aE AR-gRPC: forged\\x0d\\x1b[2J\\x7f\\x00.", "'" + logged + "'");
}

}  // namespace

int main() {
  ar_grpc::fabric::testing::RunAll("log", {{"a line stays one", ALineStaysOne}});
  return 0;
}
