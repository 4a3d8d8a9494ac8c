// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// Verbs as a subject of tests/conformance's suite, whose program this is linked into: it runs in a
// virtual RDMA host and is asked for by name.

#include "tests/conformance/subjects.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"

namespace ar_grpc::fabric::testing {
namespace {

// The third byte of its brochure says so.
bool OverIwarp() {
  const StatusOr<std::string> brochure = verbs::Get().Brochure();
  return brochure.ok() && brochure->size() > 2 && (*brochure)[2] == 3;
}

Subject Verbs() {
  Subject subject;
  subject.name = "verbs";
  subject.context = subject.other = &verbs::Get();
  subject.by_token = false;
  subject.refusal_breaks = true;
  if (OverIwarp()) subject.refusal = StatusCode::kUnavailable;
  subject.fewer_rounds = 20;
  subject.by_default = false;
  return subject;
}

const AddedSubject added(Verbs);

}  // namespace
}  // namespace ar_grpc::fabric::testing
