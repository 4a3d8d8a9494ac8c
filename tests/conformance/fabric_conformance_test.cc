// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// One suite for every fabric: what fabric.h promises. Exits 0 when all of it holds. With an
// argument: over the subject of that name alone.

#include <string>

#include "tests/conformance/suite.h"

namespace ar_grpc::fabric::testing {
namespace {

void RunOver(const Subject& subject) {
  CheckOk(subject.context->Available());
  size_t count = 0;
  for (const auto& cases :
       {StreamCases(subject), MemoryCases(subject), CloseCases(subject), AttachCases(subject)}) {
    RunAll(subject.name, cases);
    count += cases.size();
  }
  std::printf("%zu cases over %s\n", count, subject.name.c_str());
}

}  // namespace
}  // namespace ar_grpc::fabric::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::testing;
  const std::string named = argc > 1 ? argv[1] : "";
  bool found = false;
  for (const Subject& subject : Subjects()) {
    if (named.empty() ? !subject.by_default : subject.name != named) continue;
    found = true;
    RunOver(subject);
  }
  Check(found, "no subject is called '" + named + "'");
  return 0;
}
