// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef THIRD_PARTY_AR_GRPC_PROTOCOL_HANDSHAKE_INPUT_H_
#define THIRD_PARTY_AR_GRPC_PROTOCOL_HANDSHAKE_INPUT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace ar_grpc::protocol {

// What one connection brought of a handshake and is not parsed yet. Taking a frame costs no more
// than the frame: were the rest moved up for each one, a peer that sends many small frames at once
// would cost a poller's thread the square of their number.
class HandshakeInput {
 public:
  void Add(std::string_view bytes) {
    bytes_.erase(0, taken_);
    taken_ = 0;
    bytes_ += bytes;
  }
  std::string_view rest() const { return std::string_view(bytes_).substr(taken_); }
  bool empty() const { return taken_ == bytes_.size(); }

  // The first `size` bytes, which must be there.
  std::string TakeFrame(size_t size) {
    ++frames_;
    std::string frame(rest().substr(0, size));
    taken_ += size;
    return frame;
  }
  int frames() const { return frames_; }
  std::string TakeRest() {
    std::string rest_of_it(rest());
    Clear();
    return rest_of_it;
  }
  // For a fresh connection.
  void Reset() {
    Clear();
    frames_ = 0;
  }

 private:
  void Clear() {
    bytes_.clear();
    taken_ = 0;
  }

  std::string bytes_;
  size_t taken_ = 0;
  int frames_ = 0;
};

}  // namespace ar_grpc::protocol

#endif  // THIRD_PARTY_AR_GRPC_PROTOCOL_HANDSHAKE_INPUT_H_
