// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Transfers over verbs: what tests/units has of them over other fabrics.

#include "tests/units/transfer_scenarios.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"

int main() {
  using namespace ar_grpc::protocol::testing;  // NOLINT: a test's main
  const World::MakeContext verbs = World::Borrow(&ar_grpc::fabric::verbs::Get());
  ar_grpc::fabric::testing::RunAll(
      "receiver", {
                      {"bytes", [=] { AllByReads(verbs); }},
                      {"amid the read", [=] { AmidTheRead(verbs, false); }},
                      {"amid the read, links go", [=] { AmidTheRead(verbs, true); }},
                      {"many at once", [=] { ManyAtOnce(verbs); }},
                  });
  return 0;
}
