// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/registry.h"

#include <algorithm>
#include <sstream>

#include "third_party/ar_grpc/fabric/shm/shm.h"
#include "third_party/ar_grpc/fabric/verbs/verbs.h"

namespace ar_grpc::fabric {
namespace {

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Status Unknown(const std::string& value, const std::string& why) {
  std::string known;
  for (const std::string& name : KnownFabrics()) known += (known.empty() ? "" : ", ") + name;
  return Status(StatusCode::kInvalidArgument,
                "AR_GRPC_FABRICS=" + value + ": " + why + "; known names: " + known);
}

}  // namespace

const std::vector<std::string>& KnownFabrics() {
  static const auto* const names =
      new std::vector<std::string>{shm::Get().name(), verbs::Get().name(), kTcp};
  return *names;
}

Context* Find(const std::string& name) {
  for (Context* const context : {&shm::Get(), &verbs::Get()}) {
    if (name == context->name()) return context;
  }
  return nullptr;
}

StatusOr<std::vector<std::string>> ParseFabrics(const char* value) {
  const std::string text = value == nullptr ? "" : value;
  if (text.empty()) return KnownFabrics();
  const bool excludes = text.front() == '^';
  std::vector<std::string> named;
  std::istringstream list(text.substr(excludes ? 1 : 0));
  for (std::string name; std::getline(list, name, ',');) {
    if (!Contains(KnownFabrics(), name)) return Unknown(text, "no fabric is called '" + name + "'");
    if (!Contains(named, name)) named.push_back(name);
  }
  if (named.empty()) return Unknown(text, "it names no fabric");
  if (!excludes) return named;
  std::vector<std::string> rest;
  for (const std::string& name : KnownFabrics()) {
    if (!Contains(named, name)) rest.push_back(name);
  }
  if (rest.empty()) return Unknown(text, "it leaves no fabric");
  return rest;
}

}  // namespace ar_grpc::fabric
