// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// What tools and tests see of the library in their own process.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "third_party/ar_grpc/mpi/channel.h"
#include "third_party/ar_grpc/protocol/node.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"
#include "third_party/ar_grpc/tensorflow/piggybacked_cleanups.h"
#include "third_party/ar_grpc/tensorflow/runtime.h"
#include "third_party/ar_grpc/verbs/link.h"

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

// Over all nodes of the process: a tool wants to know what the process did.
protocol::Counters Sum(const std::vector<std::shared_ptr<protocol::Node>>& nodes) {
  protocol::Counters sum;
  for (const auto& node : nodes) {
    const protocol::Counters one = node->Count();
    sum.stream_bytes_sent += one.stream_bytes_sent;
    sum.stream_bytes_received += one.stream_bytes_received;
    sum.rendezvous += one.rendezvous;
    sum.rendezvous_bytes += one.rendezvous_bytes;
    sum.chunk_bytes += one.chunk_bytes;
    sum.staged_bytes += one.staged_bytes;
    sum.offers_open += one.offers_open;
    sum.links += one.links;
  }
  return sum;
}

// How servers are reached, by address. Where several nodes have connected to one server, the path
// is that of the last of them in `nodes`: fabric and distance belong to one link.
std::map<std::string, protocol::Node::Path> Paths(
    const std::vector<std::shared_ptr<protocol::Node>>& nodes) {
  std::map<std::string, protocol::Node::Path> paths;
  for (const auto& node : nodes) {
    for (const auto& [address, path] : node->Paths()) paths[address] = path;
  }
  return paths;
}

std::string StatusText() {
  const std::vector<std::shared_ptr<protocol::Node>> nodes = protocol::AllNodes();
  const protocol::Counters counters = Sum(nodes);
  const mpi::Channel* const mpi = mpi::Channel::IfStarted();
  std::string json = absl::StrCat(
      "{\"stream_bytes_sent\":", counters.stream_bytes_sent,
      ",\"stream_bytes_received\":", counters.stream_bytes_received,
      ",\"rendezvous\":", counters.rendezvous, ",\"rendezvous_bytes\":", counters.rendezvous_bytes,
      ",\"chunk_bytes\":", counters.chunk_bytes,
      ",\"mpi_bytes_sent\":", mpi == nullptr ? 0 : mpi->counts().sent.load(),
      ",\"mpi_bytes_received\":", mpi == nullptr ? 0 : mpi->counts().received.load(),
      ",\"verbs_bytes_sent\":", verbs::AllCounts().written.load(),
      ",\"verbs_bytes_received\":", verbs::AllCounts().received.load(),
      ",\"verbs_links\":", verbs::AllCounts().links.load(),
      ",\"staged_bytes\":", counters.staged_bytes, ",\"offers_open\":", counters.offers_open,
      ",\"links\":", counters.links,
      ",\"cleanups\":{\"piggybacked\":", Cleanups().piggybacked.load(),
      ",\"called\":", Cleanups().called.load(), ",\"calls_made\":", Cleanups().calls_made.load(),
      "}");
  std::vector<std::string> fabrics;
  std::vector<std::string> far;
  for (const auto& [address, path] : Paths(nodes)) {
    fabrics.push_back(absl::StrCat(Quoted(address), ":", Quoted(path.fabric)));
    if (path.far_us == 0) continue;
    far.push_back(absl::StrCat(Quoted(address), ":", static_cast<int64_t>(path.far_us)));
  }
  absl::StrAppend(&json, ",\"paths\":{", absl::StrJoin(fabrics, ","), "},\"far_us\":{",
                  absl::StrJoin(far, ","), "}");
  if (const CpuArena* const arena = CpuArena::Get()) {
    const CpuArena::Counters memory = arena->counters();
    absl::StrAppend(&json, ",\"arena\":{\"size\":", memory.size, ",\"in_use\":", memory.in_use,
                    ",\"warm_free\":", memory.warm_free, ",\"peak_in_use\":", memory.peak_in_use,
                    ",\"allocations\":", memory.allocations, "}");
  }
  absl::StrAppend(&json, ",\"protocols\":", Quoted(SchemesText(true)),
                  ",\"protocols_outside_arena\":", Quoted(SchemesText(false)), "}");
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
