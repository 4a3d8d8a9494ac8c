// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/pair_states.h"

namespace ar_grpc::fabric::verbs {
namespace {

constexpr uint32_t kPsnMask = (1 << 24) - 1;
constexpr uint64_t kLargestRequest = uint64_t{1} << 30;
// Completions of one round.
constexpr int kRound = 64;
// What the device has not given back by then it is made to, by the end of the queue pair. A pair
// that cannot be destroyed is tried again after as long.
constexpr int kDrainMs = 2000;

Status Closed() { return Status(StatusCode::kUnavailable, "the RDMA connection is closed"); }

}  // namespace

StatusOr<std::shared_ptr<QueuePair>> QueuePair::Create(std::shared_ptr<Device> device) {
  if (device->InChild()) return device->NotHere();
  const std::shared_ptr<QueuePair> made(new QueuePair(std::move(device)));
  if (Status status = made->Prepare(); !status.ok()) return status;
  made->device_->Add(made->queue_, made->pair_, made);
  // A device that failed before that has told only those which it knew.
  if (made->device_->failed()) made->OnFailure(made->device_->name() + " has failed");
  return made;
}

QueuePair::QueuePair(std::shared_ptr<Device> device)
    : device_(std::move(device)),
      first_psn_(static_cast<uint32_t>(RandomSeed()) & kPsnMask),
      seal_(RandomSeed()),
      sends_(static_cast<size_t>(device_->limits().requests),
             std::min<uint64_t>(kLargestRequest, device_->limits().message_bytes)) {}

// The device holds a prepared one until it is destroyed.
QueuePair::~QueuePair() {
  if (device_->InChild()) return;
  if (pair_ != nullptr) device_->library().destroy_qp(pair_);
  if (queue_ != nullptr) device_->library().destroy_cq(queue_);
}

Status QueuePair::Prepare() {
  const Library& library = device_->library();
  const int requests = device_->limits().requests;
  queue_ = library.create_cq(device_->context(), requests, nullptr, device_->channel(), 0);
  if (queue_ == nullptr) {
    return DeviceStatus(errno, "a completion queue of " + device_->name());
  }
  abi::QueuePairInit init = {};
  init.send_queue = queue_;
  init.receive_queue = queue_;
  init.capacity.max_send_wr = static_cast<uint32_t>(requests);
  init.capacity.max_recv_wr = 1;
  init.capacity.max_send_sge = 1;
  init.capacity.max_recv_sge = 1;
  init.type = abi::kReliableConnection;
  pair_ = library.create_qp(device_->domain(), &init);
  if (pair_ == nullptr) return DeviceStatus(errno, "a queue pair of " + device_->name());
  number_ = pair_->number;
  if (Status status = Initialize(*device_, pair_); !status.ok()) return status;
  if (const int error = queue_->context->operations.req_notify_cq(queue_, 0); error != 0) {
    return DeviceStatus(error, "asking " + device_->name() + " for events");
  }
  return Status();
}

Hello QueuePair::Describe(const Device::Port& port) const {
  Hello hello;
  hello.number = number_;
  hello.first_psn = first_psn_;
  hello.seal = seal_;
  hello.mtu = port.mtu;
  hello.most_reads = device_->limits().most_reads;
  hello.most_served_reads = device_->limits().most_served_reads;
  hello.address = port.address;
  return hello;
}

Status QueuePair::Connect(const Device::Port& port, const Hello& peer) {
  if (device_->InChild()) return device_->NotHere();
  abi::QueuePair* pair = nullptr;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!status_.ok()) return status_;
    pair = pair_;
    connecting_ = true;
  }
  Status status = ConnectTo(*device_, pair, port, first_psn_, peer);
  std::lock_guard<std::mutex> lock(mu_);
  connecting_ = false;
  if (stopped_) DestroySoon(0);
  return status_.ok() ? status : status_;
}

template <typename Section>
void QueuePair::Locked(Section section) {
  // An operation's `done` may destroy the connection, and the reactor then the device's reference.
  const std::shared_ptr<QueuePair> self = shared_from_this();
  Operations ended;
  {
    std::lock_guard<std::mutex> lock(mu_);
    section(&ended);
    finishing_ += ended.size();
  }
  Finish(ended);
}

void QueuePair::Finish(const Operations& ended) {
  if (ended.empty()) return;
  for (const std::shared_ptr<Operation>& operation : ended) {
    // Before the memory: it may go with `keep`, and a device must not have it any more then.
    operation->region.reset();
    if (operation->done) operation->done(operation->status);
    operation->done = nullptr;
    operation->keep.reset();
  }
  std::vector<std::function<void()>> closers;
  {
    std::lock_guard<std::mutex> lock(mu_);
    finishing_ -= ended.size();
    if (gone_ && finishing_ == 0) closers.swap(closers_);
  }
  for (const std::function<void()>& closer : closers) closer();
}

void QueuePair::Submit(std::shared_ptr<Operation> operation) {
  if (device_->InChild()) {
    if (operation->done) operation->done(device_->NotHere());
    return;
  }
  Locked([&](Operations* ended) {
    if (status_.ok()) {
      sends_.Add(std::move(operation));
      Post(ended);
    } else {
      operation->status = status_;
      ended->push_back(std::move(operation));
    }
  });
}

void QueuePair::Post(Operations* ended) {
  while (status_.ok()) {
    const std::optional<SendQueue::Request> request = sends_.Next();
    if (!request.has_value()) return;
    if (const int error = PostOne(*request); error != 0) {
      Fail(ErrnoStatus(error, "posting to " + device_->name()).message(), ended);
      return;
    }
    sends_.Posted(*request);
  }
}

int QueuePair::PostOne(const SendQueue::Request& request) {
  const Operation& operation = *request.operation;
  abi::Piece piece = {};
  piece.address = operation.local + request.offset;
  piece.length = static_cast<uint32_t>(request.size);
  piece.lkey = operation.region->lkey();
  abi::SendRequest send = {};
  send.id = request.id;
  send.pieces = &piece;
  send.count = 1;
  send.opcode = operation.opcode;
  send.flags = abi::kSignaled;
  send.remote_address = operation.remote + request.offset;
  send.rkey = operation.rkey;
  abi::SendRequest* refused = nullptr;
  return pair_->context->operations.post_send(pair_, &send, &refused);
}

int QueuePair::TakeCompletions(int most, Operations* ended) {
  if (queue_ == nullptr) return 0;
  std::array<abi::WorkCompletion, kRound> completions;
  most = std::min(most, kRound);
  const int count = queue_->context->operations.poll_cq(queue_, most, completions.data());
  if (count < 0) {
    Fail(device_->name() + " gives no completions", ended);
    return 0;
  }
  for (int i = 0; i < count; ++i) TakeCompletion(completions[i], ended);
  Post(ended);
  return count;
}

void QueuePair::TakeCompletion(const abi::WorkCompletion& completion, Operations* ended) {
  const std::optional<SendQueue::Request> request = sends_.TakeOut(completion.id);
  if (!request.has_value()) {
    return Fail(device_->name() + " completed what was not asked for", ended);
  }
  if (completion.status == abi::kCompleted) {
    if (request->operation->opcode == abi::kRdmaRead) {
      get_bytes_.fetch_add(request->size, std::memory_order_relaxed);
    }
    return sends_.End(*request, Status(), ended);
  }
  const char* const text = device_->library().wc_status_str(completion.status);
  const std::string what = device_->name() + ": " + (text != nullptr ? text : "unknown error");
  Status status(StatusCode::kUnavailable, what);
  if (completion.status == abi::kRemoteAccessError ||
      completion.status == abi::kRemoteInvalidRequest) {
    status =
        Status(StatusCode::kInvalidArgument, "the peer's device refused the access, by " + what);
  } else if (completion.status == abi::kFlushed && !status_.ok()) {
    status = status_;
  }
  Fail("the RDMA connection has failed: " + what, ended);
  sends_.End(*request, status, ended);
}

void QueuePair::Fail(const std::string& why, Operations* ended) {
  if (status_.ok()) status_ = Status(StatusCode::kUnavailable, why);
  closed_.store(true, std::memory_order_release);
  StopPair(ended);
}

// What is posted ends with its completion, or with the queue pair.
void QueuePair::StopPair(Operations* ended) {
  if (std::exchange(stopped_, true)) return;
  sends_.Stop(status_, ended);
  // One that cannot be stopped is destroyed.
  if (pair_ != nullptr) static_cast<void>(Stop(*device_, pair_));
  DestroySoon(sends_.busy() ? kDrainMs : 0);
}

int QueuePair::Poll(int most) {
  int count = 0;
  Locked([&](Operations* ended) {
    count = TakeCompletions(most, ended);
    if (count > 0 && stopped_ && !sends_.busy()) DestroySoon(0);
  });
  return count;
}

void QueuePair::Progress() {
  if (device_->InChild()) return;
  Poll(kRound);
}

Status QueuePair::Usable() const {
  if (device_->InChild()) return device_->NotHere();
  std::lock_guard<std::mutex> lock(mu_);
  return status_;
}

// Armed first and polled then: what completes between the two gives an event.
void QueuePair::OnCompletions() {
  Locked([this](Operations* ended) {
    if (queue_ == nullptr) return;
    const int error = queue_->context->operations.req_notify_cq(queue_, 0);
    if (error != 0) {
      Fail(ErrnoStatus(error, "asking " + device_->name() + " for events").message(), ended);
    }
  });
  if (Poll(kRound) < kRound) return;
  // The others have their turn before the next round; without the reactor this would not run.
  static_cast<void>(StartOnReactor([self = shared_from_this()] { self->OnCompletions(); }));
}

void QueuePair::OnFailure(const std::string& what) {
  Locked([&](Operations* ended) { Fail("the RDMA connection has failed: " + what, ended); });
}

void QueuePair::Close(std::function<void()> done) {
  if (device_->InChild()) {
    if (done) done();
    return;
  }
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!gone_ || finishing_ > 0) {
      if (done) closers_.push_back(std::exchange(done, nullptr));
      first = !std::exchange(closing_, true);
    }
    if (status_.ok()) status_ = Closed();
    closed_.store(true, std::memory_order_release);
  }
  if (done) done();
  if (!first) return;
  // The reactor has run since the device was opened.
  static_cast<void>(StartOnReactor([self = shared_from_this()] {
    self->Locked([&self](Operations* ended) { self->StopPair(ended); });
  }));
}

void QueuePair::DestroySoon(int delay_ms) {
  Reactor::Get().RunAfter(delay_ms, [self = shared_from_this()] { self->Destroy(); });
}

void QueuePair::Destroy() {
  abi::QueuePair* pair = nullptr;
  Locked([&](Operations* ended) {
    if (connecting_) return;  // Connect comes back
    while (pair_ != nullptr && TakeCompletions(kRound, ended) > 0) {
    }
    pair = std::exchange(pair_, nullptr);
  });
  if (pair == nullptr || !DestroyPair(pair)) return;
  abi::CompletionQueue* queue = nullptr;
  Locked([&](Operations* ended) {
    queue = std::exchange(queue_, nullptr);
    sends_.Abandon(ended);
  });
  device_->Remove(queue);
  if (const int error = device_->library().destroy_cq(queue); error != 0) {
    Log(Severity::kError, ErrnoStatus(error, "destroying a queue of " + device_->name()).message());
  }
  std::vector<std::function<void()>> closers;
  {
    std::lock_guard<std::mutex> lock(mu_);
    gone_ = true;
    // Else whoever runs an end now comes to it.
    if (finishing_ == 0) closers.swap(closers_);
  }
  for (const std::function<void()>& closer : closers) closer();
}

bool QueuePair::DestroyPair(abi::QueuePair* pair) {
  const int error = device_->library().destroy_qp(pair);
  // A device that the kernel has taken away answers so, and took its queue pairs along.
  if (error == 0 || (error == EIO && device_->failed())) return true;
  // It may still write: what it was told to stays as it is until the pair is destroyed.
  std::lock_guard<std::mutex> lock(mu_);
  if (!std::exchange(complained_, true)) {
    Log(Severity::kError,
        ErrnoStatus(error, "destroying a queue pair of " + device_->name()).message());
  }
  pair_ = pair;
  DestroySoon(kDrainMs);
  return false;
}

}  // namespace ar_grpc::fabric::verbs
