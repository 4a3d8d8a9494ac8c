// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/piggybacked_cleanups.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "google/protobuf/message.h"
#include "google/protobuf/unknown_field_set.h"

namespace ar_grpc {
namespace {

// Far above upstream's numbers, and still a tag of two bytes.
constexpr int kUnderstood = 2000;  // varint, 1: who sends this knows of cleanups
constexpr int kStepId = 2001;      // fixed64, one for each step

google::protobuf::UnknownFieldSet* FieldsOf(google::protobuf::Message* message) {
  return message->GetReflection()->MutableUnknownFields(message);
}

const google::protobuf::UnknownFieldSet& FieldsOf(const google::protobuf::Message& message) {
  return message.GetReflection()->GetUnknownFields(message);
}

bool Understood(const google::protobuf::UnknownFieldSet& fields) {
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() == kUnderstood) {
      return field.type() == google::protobuf::UnknownField::TYPE_VARINT && field.varint() == 1;
    }
  }
  return false;
}

}  // namespace

tensorflow::StatusCallback PiggybackCleanups(protocol::StepCleanups* cleanups,
                                             tensorflow::RunGraphRequest* request,
                                             const tensorflow::RunGraphResponse* response,
                                             tensorflow::StatusCallback done) {
  std::vector<int64_t> taken = cleanups->Take();
  google::protobuf::UnknownFieldSet* const fields = FieldsOf(request);
  fields->AddVarint(kUnderstood, 1);
  for (const int64_t step_id : taken) fields->AddFixed64(kStepId, static_cast<uint64_t>(step_id));
  return [cleanups, response, taken = std::move(taken),
          done = std::move(done)](const tensorflow::Status& status) {
    // Before `done`, after which the caller's worker may be gone, and `cleanups` with it.
    cleanups->Answered(taken, status.ok() && Understood(FieldsOf(*response)));
    done(status);
  };
}

void DoPiggybackedCleanups(tensorflow::WorkerInterface* worker,
                           const tensorflow::RunGraphRequest& request,
                           tensorflow::RunGraphResponse* response) {
  const google::protobuf::UnknownFieldSet& fields = FieldsOf(request);
  if (!Understood(fields)) return;
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() != kStepId || field.type() != google::protobuf::UnknownField::TYPE_FIXED64) {
      continue;
    }
    struct Call {
      tensorflow::CleanupGraphRequest request;
      tensorflow::CleanupGraphResponse response;
    };
    auto call = std::make_shared<Call>();
    call->request.set_step_id(static_cast<int64_t>(field.fixed64()));
    worker->CleanupGraphAsync(&call->request, &call->response,
                              [call](const tensorflow::Status&) {});
    Cleanups().piggybacked.fetch_add(1, std::memory_order_relaxed);
  }
  FieldsOf(response)->AddVarint(kUnderstood, 1);
}

CleanupCounts& Cleanups() {
  static CleanupCounts counts;
  return counts;
}

}  // namespace ar_grpc
