// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_VERBS_INTRODUCTION_H_
#define THIRD_PARTY_AR_GRPC_VERBS_INTRODUCTION_H_

#include <functional>
#include <memory>

#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/verbs/link.h"
#include "third_party/ar_grpc/verbs/messages.h"

namespace ar_grpc::verbs {

// How long one end waits for the next word of its own attachment before it says that it has none,
// and how long an introduction may take in all.
inline constexpr int kPatienceMs = 50;
inline constexpr int kMostSeconds = 30;

// A link, by the name that the sender knows it by.
struct NamedLink {
  Token name{};
  std::shared_ptr<Link> link;
};

// The receiver's side of an introduction: makes calls to the peer's Acceptor, one after another,
// until both ends have the connection. `call` may not block; `made` runs once, on any thread, with
// the link or why there is none. `ended` runs when a link that was made has ended, which may be
// before `made` runs.
void MakeLink(fabric::Context* context,
              std::function<void(const Introduce& introduce,
                                 std::function<void(StatusOr<Introduced>)> answered)>
                  call,
              std::function<void()> ended, std::function<void(StatusOr<NamedLink>)> made);

}  // namespace ar_grpc::verbs

#endif  // THIRD_PARTY_AR_GRPC_VERBS_INTRODUCTION_H_
