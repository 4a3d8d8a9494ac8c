// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_BASE_WIRE_H_
#define THIRD_PARTY_AR_GRPC_BASE_WIRE_H_

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

// Little-endian encoding with explicit widths, for every message of ours; nothing is read past the
// end.
namespace ar_grpc {

class Writer {
 public:
  template <typename Integer>
  void Put(Integer value) {
    for (size_t i = 0; i < sizeof(Integer); ++i) {
      bytes_.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
    }
  }
  template <size_t kSize>
  void Put(const std::array<uint8_t, kSize>& bytes) {
    bytes_.append(reinterpret_cast<const char*>(bytes.data()), kSize);
  }
  // Cut at 64 KiB - 1.
  void PutText(std::string_view text) {
    text = text.substr(0, UINT16_MAX);
    Put(static_cast<uint16_t>(text.size()));
    bytes_.append(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : rest_(bytes) {}

  template <typename Integer>
  bool Get(Integer* value) {
    if (rest_.size() < sizeof(Integer)) return false;
    uint64_t sum = 0;
    for (size_t i = 0; i < sizeof(Integer); ++i) {
      sum |= static_cast<uint64_t>(static_cast<uint8_t>(rest_[i])) << (8 * i);
    }
    *value = static_cast<Integer>(sum);
    rest_.remove_prefix(sizeof(Integer));
    return true;
  }
  template <size_t kSize>
  bool Get(std::array<uint8_t, kSize>* bytes) {
    if (rest_.size() < kSize) return false;
    std::memcpy(bytes->data(), rest_.data(), kSize);
    rest_.remove_prefix(kSize);
    return true;
  }
  bool GetText(std::string* text) {
    uint16_t size = 0;
    if (!Get(&size) || rest_.size() < size) return false;
    text->assign(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return true;
  }
  std::string_view Rest() { return std::exchange(rest_, {}); }
  bool AtEnd() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace ar_grpc

#endif  // THIRD_PARTY_AR_GRPC_BASE_WIRE_H_
