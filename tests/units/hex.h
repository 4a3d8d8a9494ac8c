// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_UNITS_HEX_H_
#define TESTS_UNITS_HEX_H_

#include <string>

// Bytes as tests of wire formats spell them out.
inline std::string Hex(const std::string& bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

#endif  // TESTS_UNITS_HEX_H_
