// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ATTACHMENT_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ATTACHMENT_H_

#include <memory>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"

namespace ar_grpc::fabric::verbs {

enum class AttachEnd { kServer, kClient };

// Three frames make a connection: the server's Hello, the client's, and the server's word that its
// end takes operations. Over RoCE and InfiniBand these say nothing of the devices' own way, which a
// firewall or a switch may close, so the client then sends a first frame over it. Its end is
// attached when the peer's device has answered, the server's when the frame has come.
StatusOr<std::unique_ptr<Attachment>> Attach(std::shared_ptr<Device> device, AttachEnd end,
                                             AttachEvents events);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_ATTACHMENT_H_
