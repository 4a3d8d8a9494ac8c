// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_H_

#include <string>

#include "third_party/ar_grpc/base/status.h"
#include "third_party/ar_grpc/fabric/fabric.h"
#include "third_party/ar_grpc/protocol/figures.h"

// A fabric's figures, by its own operations on this machine. A few rounds, apart in time, and of
// each figure the least: all else that the machine does only ever adds to what an operation takes.
// Within 40 ms on an idle core and 300 ms on any; what could not be measured by then is assumed.
// The result is plausible (figures.h).
namespace ar_grpc::protocol {

// Of a connection of `context` with itself. Where it has no stream, the stream's figures are
// assumed ones. An error where no connection or memory is to be had.
StatusOr<Figures> Measure(fabric::Context* context);

// Of gRPC's own connection: a socket over 127.0.0.1, or a Unix one where that is refused.
Figures MeasureTcp();

// By the fabric's name; where it cannot be measured, assumed ones, with a line in the log. A fabric
// without a stream has TCP's.
Figures MeasuredFigures(const std::string& fabric);

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_MEASURE_H_
