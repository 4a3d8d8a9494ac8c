// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/base/random.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace ar_grpc {
namespace {

// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
// OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

bool FillRandom(void* bytes, size_t size) {
  size_t drawn = 0;
  while (drawn < size) {
    const ssize_t got = getrandom(static_cast<uint8_t*>(bytes) + drawn, size - drawn, 0);
    if (got > 0) {
      drawn += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

uint64_t RandomSeed() {
  uint64_t seed = 0;
  if (FillRandom(&seed, sizeof(seed))) return seed;
  static std::atomic<uint64_t> count{0};
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return Mix(static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec)) ^
         Mix((static_cast<uint64_t>(getpid()) << 32) + ++count);
}

Token NewToken() {
  Token token;
  if (FillRandom(token.data(), token.size())) return token;
  for (uint8_t& byte : token) byte = static_cast<uint8_t>(RandomSeed());
  return token;
}

std::string RandomHex() {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : NewToken()) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace ar_grpc
