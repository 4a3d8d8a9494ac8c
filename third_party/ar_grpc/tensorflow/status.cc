// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What tools and tests see of the library in their own process.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "third_party/ar_grpc/protocol/cost_model.h"
#include "third_party/ar_grpc/protocol/measure.h"
#include "third_party/ar_grpc/protocol/peers.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"

namespace ar_grpc {
namespace {

// Names and addresses here have no character that JSON would escape, but for the table's newlines.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    if (letter == '\n') {
      quoted += "\\n";
    } else {
      if (letter == '"' || letter == '\\') quoted += '\\';
      quoted += letter;
    }
  }
  return quoted + "\"";
}

std::string StatusText() {
  const protocol::Counters counters = protocol::Peers::Get().Count();
  std::string json = absl::StrCat(
      "{\"stream_bytes_sent\":", counters.stream_bytes_sent,
      ",\"stream_bytes_received\":", counters.stream_bytes_received,
      ",\"rendezvous\":", counters.rendezvous, ",\"rendezvous_bytes\":", counters.rendezvous_bytes,
      ",\"chunk_bytes\":", counters.chunk_bytes, ",\"staged_bytes\":", counters.staged_bytes,
      ",\"offers_open\":", counters.offers_open, ",\"links\":", counters.links);
  absl::StrAppend(&json, ",\"paths\":{");
  const char* comma = "";
  for (const auto& [address, fabric] : protocol::Peers::Get().Paths()) {
    absl::StrAppend(&json, comma, Quoted(address), ":", Quoted(fabric));
    comma = ",";
  }
  absl::StrAppend(&json, "}");
  if (const CpuArena* const arena = CpuArena::Get()) {
    const CpuArena::Counters memory = arena->counters();
    absl::StrAppend(&json, ",\"arena\":{\"size\":", memory.size, ",\"in_use\":", memory.in_use,
                    ",\"warm_free\":", memory.warm_free, ",\"peak_in_use\":", memory.peak_in_use,
                    ",\"allocations\":", memory.allocations, "}");
  }
  const protocol::Figures& figures = protocol::MeasuredSharedMemory();
  absl::StrAppend(&json, ",\"protocols\":",
                  Quoted(protocol::Print(protocol::Envelope(figures, true), figures, true)), "}");
  return json;
}

}  // namespace
}  // namespace ar_grpc

// Writes at most `size` bytes of JSON text to `into` and returns its whole length, as snprintf does
// but without a final zero.
extern "C" __attribute__((visibility("default"))) size_t ar_grpc_status(char* into, size_t size) {
  const std::string json = ar_grpc::StatusText();
  std::memcpy(into, json.data(), std::min(size, json.size()));
  return json.size();
}
