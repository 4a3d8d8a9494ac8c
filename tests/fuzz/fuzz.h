// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_FUZZ_FUZZ_H_
#define TESTS_FUZZ_FUZZ_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "third_party/ar_grpc/base/status.h"

// What the targets of this folder share. Each has LLVMFuzzerTestOneInput, which libFuzzer calls
// with inputs that it makes of the corpus.
namespace ar_grpc::fuzz {

// What must hold for any bytes; the input that breaks it is written to a file.
inline void Must(bool held, const char* what) {
  if (held) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

// Takes an input apart; at its end all numbers are 0 and all texts empty.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    const std::string text = Text(1);
    return text.empty() ? 0 : static_cast<uint8_t>(text[0]);
  }
  uint64_t Number(int bytes) {
    uint64_t number = 0;
    for (int i = 0; i < bytes; ++i) number |= uint64_t{Byte()} << (8 * i);
    return number;
  }
  // Up to `most` bytes.
  std::string Text(size_t most) {
    std::string text(rest_.substr(0, most));
    rest_.remove_prefix(text.size());
    return text;
  }
  std::string Rest() { return Text(rest_.size()); }

 private:
  std::string_view rest_;
};

// What a parser takes is also written, and taken again as the same.
template <typename Decode, typename Write>
void RoundTrip(const std::string& bytes, Decode decode, Write write) {
  const auto first = decode(bytes);
  if (!first.ok()) {
    Must(!first.status().message().empty(), "a refusal says why");
    return;
  }
  const std::string written = write(*first);
  const auto second = decode(written);
  Must(second.ok(), "what was written is read");
  Must(write(*second) == written, "and is the same");
}

template <typename Decode>
void RoundTrip(const std::string& bytes, Decode decode) {
  RoundTrip(bytes, decode, [](const auto& value) { return Encode(value); });
}

}  // namespace ar_grpc::fuzz

#endif  // TESTS_FUZZ_FUZZ_H_
