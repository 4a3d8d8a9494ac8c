// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_FABRIC_VERBS_IWARP_ATTACHMENT_H_
#define THIRD_PARTY_AR_GRPC_FABRIC_VERBS_IWARP_ATTACHMENT_H_

#include <memory>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/fabric/verbs/device.h"

namespace ar_grpc::fabric::verbs {

// Attach (attachment.h) over an iWARP device. The server listens at its addresses for this one
// attachment and says where, and what to show there; the client connects, sends the first frame
// over the new connection, since over iWARP the server must not, and says that it has; the server,
// when both have come, that its end takes operations.
StatusOr<std::unique_ptr<Attachment>> AttachIwarp(std::shared_ptr<Device> device,
                                                  const Device::Port& port, bool server,
                                                  AttachEvents events);

}  // namespace ar_grpc::fabric::verbs

#endif  // THIRD_PARTY_AR_GRPC_FABRIC_VERBS_IWARP_ATTACHMENT_H_
