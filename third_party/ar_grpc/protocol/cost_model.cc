// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/cost_model.h"

#include <utility>

#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/protocol/measure.h"

namespace ar_grpc::protocol {

Selector::Selector(Measurer measure) : measure_(measure ? std::move(measure) : MeasuredFigures) {}

void Selector::Prepare(const std::vector<std::string>& fabrics) {
  for (const std::string& fabric : fabrics) TableFor(fabric);
  TableFor(fabric::kTcp);
}

const SchemeTable* Selector::Known(const std::string& fabric) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = tables_.find(fabric);
  return found == tables_.end() ? nullptr : found->second.get();
}

Figures Selector::FiguresOf(const std::string& fabric) const {
  const SchemeTable* const table = Known(fabric);
  return table == nullptr ? Assumed(fabric) : table->figures();
}

const SchemeTable& Selector::TableFor(const std::string& fabric) const {
  if (const SchemeTable* const table = Known(fabric)) return *table;
  // Two measurements at the same time would slow each other.
  std::lock_guard<std::mutex> measuring(measuring_mu_);
  if (const SchemeTable* const table = Known(fabric)) return *table;
  auto table = std::make_unique<const SchemeTable>(SchemeTable::Make(measure_(fabric)));
  std::lock_guard<std::mutex> lock(mu_);
  if (first_.empty() && fabric != fabric::kTcp) first_ = fabric;
  return *(tables_[fabric] = std::move(table));
}

std::string Selector::Print(bool in_segment) const {
  std::string first;
  {
    std::lock_guard<std::mutex> lock(mu_);
    first = first_;
  }
  const bool can_read = !first.empty();
  return TableFor(can_read ? first : fabric::kTcp).Print(can_read, can_read && in_segment);
}

}  // namespace ar_grpc::protocol
