// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_COST_MODEL_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_COST_MODEL_H_

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "third_party/ar_grpc/protocol/figures.h"
#include "third_party/ar_grpc/protocol/schemes.h"

namespace ar_grpc::protocol {

// Which scheme carries a tensor, for each fabric that one node uses, and for peers of it that are
// farther away than the node itself. A fabric's figures are measured once, by Prepare or at the
// first question about it, and stay: what a peer sees of this node does not change while it runs.
// How far a peer is, is known of each connection (Link). Thread-safe.
class Selector {
 public:
  // Plausible figures of a fabric by its name, with the stream of what carries gRPC's over it.
  using Measurer = std::function<Figures(const std::string& fabric)>;
  // Without a measurer: MeasuredFigures (measure.h).
  explicit Selector(Measurer measure = nullptr);

  // Measures those of `fabrics` and TCP, which is what remains where a fabric fails, that are not
  // yet, one after the other: up to 40 ms each, and 300 ms on a busy machine. Not for the reactor's
  // thread, which a fabric needs while it is measured.
  void Prepare(const std::vector<std::string>& fabrics);

  // Figures::far_us of a peer to which TCP's quickest round trip takes so long; 0 where TCP was not
  // measured yet, as this never does.
  double FarUs(std::chrono::microseconds round_trip) const;

  // `fabric` is a link's: what the receiver reads over, or "tcp"; `far_us` is a FarUs. Lives as
  // long as the selector.
  const SchemeTable& TableFor(const std::string& fabric, double far_us = 0) const;
  // The figures behind the table; assumed ones where nothing was measured yet, as this never does.
  Figures FiguresOf(const std::string& fabric, double far_us = 0) const;
  Scheme Choose(const std::string& fabric, double far_us, const Situation& situation) const {
    return TableFor(fabric, far_us).Choose(situation);
  }
  // The table of the first fabric that was measured other than TCP, for tensors in memory that
  // peers can read or for those elsewhere; without such a fabric TCP's, over which none can be
  // read.
  std::string Print(bool in_segment) const;

 private:
  const SchemeTable& NearTable(const std::string& fabric) const;
  // nullptr where nothing was measured yet, or no table was made for peers that are so far.
  const SchemeTable* Known(const std::string& fabric, double far_us) const;

  const Measurer measure_;
  // One fabric at a time is measured; who asks about one that is known does not wait for it.
  mutable std::mutex measuring_mu_;
  mutable std::mutex mu_;
  using Way = std::pair<std::string, double>;  // the fabric, and far_us, a power of two
  mutable std::map<Way, std::unique_ptr<const SchemeTable>> tables_;  // guarded by mu_
  mutable std::string first_;  // guarded by mu_; the first that is not TCP
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_COST_MODEL_H_
