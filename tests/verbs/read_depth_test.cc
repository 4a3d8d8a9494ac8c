// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

// read_depth_test PEER MOST: the device serves PEER READs of a connection at once, as it says to
// libibverbs, and takes more. Many are asked for, and MOST of them, no more and no fewer, are with
// the device at once: what it could not begin would hold up the frames behind it. Both ends are in
// this process.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "tests/verbs/library_to_wrap.h"
#include "tests/verbs/own_pair.h"
#include "third_party/ar_grpc/fabric/verbs/library.h"

namespace ar_grpc::fabric::verbs::testing {
namespace {

constexpr size_t kBytes = size_t{256} << 10;
constexpr int kReads = 64;

// As they are in the library.
Library real;
abi::ContextOperations real_operations;

int served = 0;
// Whether completions are seen, so that none ends before all are asked for.
std::atomic<bool> answers{true};
std::mutex mu;
int posted = 0;
int most_posted = 0;

int QueryDevice(abi::Context* context, abi::DeviceAttributes* attributes) {
  const int error = real.query_device(context, attributes);
  Check(attributes->max_qp_rd_atom > served && attributes->max_qp_init_rd_atom > served,
        "a device that serves too few");
  attributes->max_qp_rd_atom = served;
  return error;
}

int PostSend(abi::QueuePair* pair, abi::SendRequest* request, abi::SendRequest** refused) {
  if (request->opcode == abi::kRdmaRead) {
    std::lock_guard<std::mutex> lock(mu);
    most_posted = std::max(most_posted, ++posted);
  }
  return real_operations.post_send(pair, request, refused);
}

int Poll(abi::CompletionQueue* queue, int count, abi::WorkCompletion* completions) {
  if (!answers) return 0;
  constexpr int kHasRead = 2;
  std::lock_guard<std::mutex> lock(mu);
  const int got = real_operations.poll_cq(queue, count, completions);
  posted -= static_cast<int>(
      std::count_if(completions, completions + std::max(got, 0),
                    [](const abi::WorkCompletion& one) { return one.opcode == kHasRead; }));
  return got;
}

abi::Context* OpenDevice(abi::Device* device) {
  abi::Context* const context = real.open_device(device);
  real_operations = context->operations;
  context->operations.poll_cq = Poll;
  context->operations.post_send = PostSend;
  return context;
}

void Wrap() {
  Library* const library = LibraryToWrap();
  real = *library;
  library->open_device = OpenDevice;
  library->query_device = QueryDevice;
}

void NoMoreAtOnceThan(int most) {
  const Pair pair = Connected();
  const Memory memory(kBytes);
  const Key key = Value(pair.owner->Export(memory.registration));
  std::vector<std::vector<uint8_t>> into(kReads, std::vector<uint8_t>(kBytes));
  std::array<Awaited<Status>, kReads> ended;
  answers = false;
  for (size_t i = 0; i < kReads; ++i) {
    pair.reader->Get(key, 0, into[i].data(), kBytes, nullptr,
                     [&, i](Status s) { ended[i].Set(s); });
  }
  Check(posted == most, std::to_string(posted) + " READs at once");
  answers = true;
  pair.reader->Progress();
  for (size_t i = 0; i < kReads; ++i) {
    CheckCode(ended[i].Get(), StatusCode::kOk);
    for (size_t byte = 0; byte < kBytes; ++byte) {
      Check(into[i][byte] == ByteAt(byte), "a byte that was read");
    }
  }
  Check(most_posted == most, std::to_string(most_posted) + " READs at once");
}

}  // namespace
}  // namespace ar_grpc::fabric::verbs::testing

int main(int argc, char** argv) {
  using namespace ar_grpc::fabric::verbs::testing;  // NOLINT: a test's main
  Check(argc == 3, "PEER MOST");
  served = std::atoi(argv[1]);
  Wrap();
  NoMoreAtOnceThan(std::atoi(argv[2]));
  std::puts("ok read depth");
}
