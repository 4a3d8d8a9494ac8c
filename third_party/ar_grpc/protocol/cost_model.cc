// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/protocol/cost_model.h"

#include <cmath>
#include <utility>

#include "third_party/ar_grpc/fabric/registry.h"
#include "third_party/ar_grpc/protocol/measure.h"

namespace ar_grpc::protocol {

Selector::Selector(Measurer measure) : measure_(measure ? std::move(measure) : MeasuredFigures) {}

void Selector::Prepare(const std::vector<std::string>& fabrics) {
  for (const std::string& fabric : fabrics) TableFor(fabric);
  TableFor(fabric::kTcp);
}

const SchemeTable* Selector::Known(const std::string& fabric, double far_us) const {
  std::lock_guard<std::mutex> lock(mu_);
  const auto found = tables_.find({fabric, far_us});
  return found == tables_.end() ? nullptr : found->second.get();
}

double Selector::FarUs(std::chrono::microseconds round_trip) const {
  const SchemeTable* const tcp = Known(fabric::kTcp, /*far_us=*/0);
  if (tcp == nullptr) return 0;
  return protocol::FarUs(static_cast<double>(round_trip.count()), tcp->figures().round_trip_us);
}

Figures Selector::FiguresOf(const std::string& fabric, double far_us) const {
  const SchemeTable* const table = Known(fabric, /*far_us=*/0);
  Figures figures = table == nullptr ? Assumed(fabric) : table->figures();
  figures.far_us = far_us;
  return figures;
}

const SchemeTable& Selector::TableFor(const std::string& fabric, double far_us) const {
  if (far_us == 0) return NearTable(fabric);
  // Few tables do for all peers.
  const double rounded = std::exp2(std::floor(std::log2(far_us)));
  if (const SchemeTable* const table = Known(fabric, rounded)) return *table;
  Figures figures = NearTable(fabric).figures();
  figures.far_us = rounded;
  auto table = std::make_unique<const SchemeTable>(SchemeTable::Make(figures));
  std::lock_guard<std::mutex> lock(mu_);
  return *tables_.emplace(Way(fabric, rounded), std::move(table)).first->second;
}

const SchemeTable& Selector::NearTable(const std::string& fabric) const {
  if (const SchemeTable* const table = Known(fabric, 0)) return *table;
  // Two measurements at the same time would slow each other.
  std::lock_guard<std::mutex> measuring(measuring_mu_);
  if (const SchemeTable* const table = Known(fabric, 0)) return *table;
  auto table = std::make_unique<const SchemeTable>(SchemeTable::Make(measure_(fabric)));
  std::lock_guard<std::mutex> lock(mu_);
  if (first_.empty() && fabric != fabric::kTcp) first_ = fabric;
  return *(tables_[{fabric, 0}] = std::move(table));
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
