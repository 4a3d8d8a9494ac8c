// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Verbs as a subject of tests/conformance's suite, whose program this is linked into: it runs in a
// virtual RDMA host and is asked for by name.

#include "tests/conformance/subjects.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"

namespace ar_grpc::fabric::testing {
namespace {

Subject Verbs() {
  Subject subject;
  subject.name = "verbs";
  subject.context = subject.other = &verbs::Get();
  subject.by_token = false;
  subject.refusal_breaks = true;
  subject.by_default = false;
  return subject;
}

const AddedSubject added(Verbs);

}  // namespace
}  // namespace ar_grpc::fabric::testing
