// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.
#ifndef TESTS_MPI_SCENARIOS_H_
#define TESTS_MPI_SCENARIOS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/conformance/testing.h"
#include "third_party/ar_grpc/mpi/channel.h"

// What the ranks of a job do to show that a channel keeps its promises: over a real MPI a process
// each, over the fake one a thread each.
namespace ar_grpc::mpi::testing {

using fabric::testing::Check;
using fabric::testing::CheckCode;
using fabric::testing::CheckOk;
using fabric::testing::Ended;
using fabric::testing::Eventually;
using fabric::testing::kTimeoutMs;
using fabric::testing::Pattern;
using fabric::testing::Value;

// Memory that is overwritten when its last owner goes, and then must not change any more.
class Memory {
 public:
  explicit Memory(size_t size) : bytes_(std::make_shared<std::vector<uint8_t>>(size)) {}
  uint8_t* data() { return bytes_->data(); }
  size_t size() const { return bytes_->size(); }
  void Fill(uint64_t seed);
  void CheckFilled(uint64_t seed, int line = __builtin_LINE()) const;
  // To be given away, once; released() afterwards.
  Keep keep();
  bool released() const { return *released_; }
  // Since it was released nobody has written to it.
  void CheckUntouched(int line = __builtin_LINE()) const;

 private:
  const std::shared_ptr<std::vector<uint8_t>> bytes_;
  const std::shared_ptr<std::atomic<bool>> released_ = std::make_shared<std::atomic<bool>>(false);
};

// A rank, and the tags that both ends know without telling: all are drawn beforehand, in order.
class Rank {
 public:
  explicit Rank(Channel& channel);

  Channel& channel() { return channel_; }
  int rank() const { return channel_.job().rank; }
  int size() const { return channel_.job().size; }

  // The next tag for sending to and for receiving from a rank. Neither end skips one.
  int NextSend(int to) { return sent_[to]++; }
  Tag NextReceive(int from);

  // A word to a rank, and waiting for one from it.
  void Tell(int to);
  void Hear(int from);
  // Returns once all ranks are here.
  void Meet();
  // Sends and receives one message, and looks at its bytes.
  void Give(int to, size_t size, uint64_t seed);
  void Take(int from, size_t size, uint64_t seed);

 private:
  Channel& channel_;
  std::map<int, int> sent_;
  std::map<int, std::deque<Tag>> tags_;
};

struct Scenario {
  const char* name;
  int ranks;
  uint64_t chunk_bytes;
  std::function<void(Rank& rank)> run;
};

// Those that a thread can be a rank of, too.
const std::vector<Scenario>& Scenarios();

}  // namespace ar_grpc::mpi::testing

#endif  // TESTS_MPI_SCENARIOS_H_
