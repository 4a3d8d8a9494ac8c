// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// A ring's two private ends over memory in which the peer writes any counters at any time: nothing
// is read or written outside of the ring, and what counts more than it may is refused.

#include <memory>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "third_party/ar_grpc/fabric/ring.h"

namespace ar_grpc::fabric {
namespace {

using fuzz::Input;
using fuzz::Must;

class NoDoorbell final : public Doorbell {
 public:
  int fd() const override { return -1; }
  void Clear() override {}
  void WakePeer() override {}
  void WakeSelf() override {}
};

class Ends {
 public:
  Ends(RingControl* control, const RingView& view)
      : control_(control), capacity_(view.capacity), writer_(view), reader_(view) {}

  // false: the peer has lied; nothing more is asked of such a ring.
  bool Step(Input* input) {
    const uint8_t what = input->Byte();
    std::vector<uint8_t> bytes(input->Byte());
    switch (what % 8) {
      case 0:
        return Add(&control_->written, &most_written_, what, input);
      case 1:
        return Add(&control_->consumed, &most_consumed_, what, input);
      case 2:
        control_->reader_armed = control_->writer_armed = what;
        return true;
      case 3: {
        const iovec part = {bytes.data(), bytes.size()};
        const auto wrote = writer_.Write(&part, 1);
        return wrote.ok() && Wrote(*wrote, bytes.size());
      }
      case 4: {
        const auto wrote = writer_.WriteAll(bytes.data(), bytes.size());
        return wrote.ok() && Wrote(*wrote ? bytes.size() : 0, bytes.size());
      }
      case 5: {
        const auto read = reader_.Read(bytes.data(), bytes.size());
        return read.ok() && Read(*read, bytes.size());
      }
      case 6:
        return writer_.Arm().ok();
      default: {
        const auto readable = reader_.Readable();
        Must(!readable.ok() || *readable <= capacity_, "no more is readable than a ring holds");
        return readable.ok() && reader_.Arm().ok();
      }
    }
  }

 private:
  // What the peer writes there; honest or not.
  static bool Add(std::atomic<uint64_t>* counter, uint64_t* most, uint8_t what, Input* input) {
    *counter += input->Number(what % 16 < 8 ? 1 : 8);
    *most = std::max<uint64_t>(*most, *counter);
    return true;
  }
  bool Wrote(size_t size, size_t asked) {
    Must(size <= asked, "no more is written than was given");
    wrote_ += size;
    most_written_ = std::max(most_written_, wrote_);
    Must(wrote_ <= capacity_ || wrote_ - capacity_ <= most_consumed_, "nothing is overwritten");
    return true;
  }
  bool Read(size_t size, size_t asked) {
    Must(size <= asked, "no more is read than was asked for");
    read_ += size;
    most_consumed_ = std::max(most_consumed_, read_);
    Must(read_ <= most_written_, "nothing is read that was not written");
    return true;
  }

  RingControl* const control_;
  const size_t capacity_;
  RingWriter writer_;
  RingReader reader_;
  uint64_t wrote_ = 0;
  uint64_t read_ = 0;
  // That the counters have said, by either end.
  uint64_t most_written_ = 0;
  uint64_t most_consumed_ = 0;
};

}  // namespace
}  // namespace ar_grpc::fabric

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ar_grpc::fabric;  // NOLINT: an entry point
  ar_grpc::fuzz::Input input(data, size);
  auto control = std::make_unique<RingControl>();
  const size_t capacity = size_t{1} << (input.Byte() % 9);
  const std::unique_ptr<uint8_t[]> bytes(new uint8_t[capacity]());
  NoDoorbell doorbell;
  const RingView view = {control.get(), &control->reader_armed, bytes.get(), capacity, &doorbell};
  Ends ends(control.get(), view);
  while (!input.empty() && ends.Step(&input)) {
  }
  return 0;
}
