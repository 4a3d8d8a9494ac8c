// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/reactor.h"
#include "third_party/ar_grpc/fabric/verbs/closed_in_child.h"
#include "third_party/ar_grpc/fabric/verbs/pair_states.h"

namespace ar_grpc::fabric::verbs {
namespace {

constexpr uint32_t kPsnMask = (1 << 24) - 1;
constexpr uint64_t kLargestRequest = uint64_t{1} << 30;
// Asked for; a device that has no such thing is asked for none. The calls of a step without a
// tensor's bytes have room: the largest, a RunGraph that takes a cleanup along, has some 140.
constexpr uint32_t kInlineBytes = 192;

}  // namespace

StatusOr<std::shared_ptr<QueuePair>> QueuePair::Create(std::shared_ptr<Device> device) {
  if (device->InChild()) return device->NotHere();
  const std::shared_ptr<QueuePair> made(new QueuePair(std::move(device)));
  if (Status status = made->Prepare(); !status.ok()) return status;
  made->device_->Add(made->sent_, made->pair_, made);
  made->device_->Add(made->received_, made->pair_, made);
  // A device that failed before that has told only those which it knew.
  if (made->device_->failed()) made->OnFailure(made->device_->name() + " has failed");
  return made;
}

QueuePair::QueuePair(std::shared_ptr<Device> device)
    : device_(std::move(device)),
      first_psn_(static_cast<uint32_t>(RandomSeed()) & kPsnMask),
      seal_(RandomSeed()),
      sends_(device_->limits().most_reads,
             std::min<uint64_t>(kLargestRequest, device_->limits().message_bytes)) {}

// The device holds a prepared one until it is destroyed.
QueuePair::~QueuePair() {
  if (device_->InChild()) return;
  const std::unique_lock<std::mutex> no_fork = HoldOffForks();
  if (pair_ != nullptr) device_->library().destroy_qp(pair_);
  for (abi::CompletionQueue* const queue : {sent_, received_}) {
    if (queue != nullptr) device_->library().destroy_cq(queue);
  }
}

Status QueuePair::Prepare() {
  StatusOr<UniqueFd> wake = NewWakeFd();
  if (!wake.ok()) return wake.status();
  wake_ = std::move(*wake);
  StatusOr<std::shared_ptr<uint8_t>> buffers =
      Map(-1, kConnectionBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
  if (!buffers.ok()) return buffers.status();
  buffers_ = std::move(*buffers);
  StatusOr<std::shared_ptr<MemoryRegion>> region = MemoryRegion::Register(
      device_, buffers_.get() + kFirstBuffers.begin, kFirstBytes, abi::kAccessLocalWrite);
  if (!region.ok()) return region.status();
  regions_.push_back(std::move(*region));
  stream_.emplace(buffers_.get());

  const Library& library = device_->library();
  abi::QueuePairInit init = {};
  init.capacity.max_send_wr = kSendBuffers + static_cast<uint32_t>(sends_.most_parts());
  init.capacity.max_recv_wr = kReceiveBuffers;
  init.capacity.max_send_sge = 1;
  init.capacity.max_recv_sge = 1;
  init.capacity.max_inline_data = kInlineBytes;
  init.type = abi::kReliableConnection;
  const auto make_queue = [&](uint32_t entries) {
    // Soft-iWARP's library fails without a reason, and an old one would stand for it.
    errno = 0;
    const std::unique_lock<std::mutex> no_fork = HoldOffForks();
    return library.create_cq(device_->context(), static_cast<int>(entries), nullptr,
                             device_->channel(), 0);
  };
  sent_ = make_queue(init.capacity.max_send_wr);
  received_ = sent_ == nullptr ? nullptr : make_queue(init.capacity.max_recv_wr);
  if (received_ == nullptr) return DeviceStatus(errno, "a completion queue of " + device_->name());
  init.send_queue = sent_;
  init.receive_queue = received_;
  const auto make_pair = [&] {
    const std::unique_lock<std::mutex> no_fork = HoldOffForks();
    return library.create_qp(device_->domain(), &init);
  };
  pair_ = make_pair();
  // Less than a device takes is no loss.
  while (pair_ == nullptr && errno == EINVAL && init.capacity.max_inline_data > 0) {
    init.capacity.max_inline_data /= 2;
    pair_ = make_pair();
  }
  if (pair_ == nullptr) return DeviceStatus(errno, "a queue pair of " + device_->name());
  number_ = pair_->number;
  inline_bytes_ = init.capacity.max_inline_data;
  if (Status status = Initialize(*device_, pair_); !status.ok()) return status;
  // Before the peer hears of the pair.
  for (uint32_t i = 0; i < kFirstReceiveBuffers; ++i) {
    if (const int error = PostReceive(i); error != 0) {
      return DeviceStatus(error, "posting receive buffers to " + device_->name());
    }
  }
  // What is sent is asked for when somebody waits for it: AwaitAnswers.
  if (const int error = received_->context->operations.req_notify_cq(received_, 0); error != 0) {
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
  const StatusOr<Route> route = FindRoute(port.address, peer.address);
  if (!route.ok()) return route.status();
  abi::QueuePair* pair = nullptr;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!status_.ok()) return status_;
    pair = pair_;
    connecting_ = true;
    if (port.address.link_layer == abi::kLinkLayerEthernet) own_name_ = route->own;
  }
  Status status = ConnectTo(*device_, pair, port, *route, first_psn_, peer);
  std::lock_guard<std::mutex> lock(mu_);
  connecting_ = false;
  connected_ = status.ok();
  sends_.Limit(peer.most_served_reads);
  if (stopped_) DestroySoon(0);
  return status_.ok() ? status : status_;
}

void QueuePair::WhenHeard(std::function<void()> heard) {
  std::lock_guard<std::mutex> lock(mu_);
  // One that has failed may have been destroyed already, and would keep it for ever.
  if (status_.ok()) heard_ = std::move(heard);
}

void QueuePair::Heard() {
  connected_ = status_.ok();
  // The reactor has run since the device was opened.
  static_cast<void>(StartOnReactor(std::exchange(heard_, nullptr)));
}

Status QueuePair::Greet(std::function<void()> answered) {
  if (device_->InChild()) return device_->NotHere();
  Status status;
  Locked([&](Operations* ended) {
    if (status_.ok()) {
      connected_ = true;
      answered_ = std::move(answered);
      PostFrame(stream_->TakeForGreeting(), FrameKind::kCredits, 0, ended);
      AwaitAnswers(ended);
    }
    status = status_;
  });
  return status;
}

void QueuePair::Answered() { static_cast<void>(StartOnReactor(std::exchange(answered_, nullptr))); }

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
    // Before the operation is posted: its end gives an event.
    if (status_.ok()) ArmSent(ended);
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
    if (!request.has_value() || !PostRequest(*request, ended)) return;
  }
}

bool QueuePair::PostRequest(const SendQueue::Request& request, Operations* ended) {
  abi::Piece piece = {};
  piece.length = static_cast<uint32_t>(request.size);
  abi::SendRequest send = {};
  send.id = request.id;
  send.pieces = &piece;
  send.count = 1;
  send.flags = request.signaled ? abi::kSignaled : 0;
  if (const Operation* const operation = request.operation.get(); operation != nullptr) {
    piece.address = operation->local + request.offset;
    piece.lkey = operation->region->lkey();
    send.opcode = operation->opcode;
    send.remote_address = operation->remote + request.offset;
    send.rkey = operation->rkey;
  } else {
    const uint8_t* const buffer = stream_->send_buffer(request.buffer);
    piece.address = reinterpret_cast<uintptr_t>(buffer);
    piece.lkey = LkeyOf(buffer);
    send.opcode = abi::kSend;
    if (request.size <= inline_bytes_) send.flags |= abi::kInline;
  }
  abi::SendRequest* refused = nullptr;
  const int error = pair_->context->operations.post_send(pair_, &send, &refused);
  if (error != 0) {
    FailPosting(error, ended);
    return false;
  }
  sends_.Posted(request);
  return true;
}

int QueuePair::TakeSent(Operations* ended) {
  if (sent_ == nullptr) return 0;
  std::array<abi::WorkCompletion, kRound> completions;
  const int count = sent_->context->operations.poll_cq(sent_, kRound, completions.data());
  if (count < 0) {
    Fail(device_->name() + " gives no completions", ended);
    return 0;
  }
  for (int i = 0; i < count; ++i) TakeCompletion(completions[i], ended);
  Post(ended);
  Advance(ended);
  return count;
}

void QueuePair::TakeCompletion(const abi::WorkCompletion& completion, Operations* ended) {
  const std::vector<SendQueue::Request> taken = sends_.TakeOut(completion.id);
  if (taken.empty()) return Fail(device_->name() + " completed what was not asked for", ended);
  for (const SendQueue::Request& one : taken) {
    if (!one.operation) stream_->FreeSendBuffer(one.buffer);
  }
  const SendQueue::Request& request = taken.back();
  if (completion.status == abi::kCompleted) {
    if (!request.operation) {
      // No frame goes before the greeting.
      if (answered_) Answered();
      // Nothing is sent after the close: the peer has it, and all that went before it. Over iWARP
      // it may still be on its way, and the peer's end goes when it comes.
      if (close_sent_ && !sends_.has_frames() && !device_->iwarp()) StopPair(ended);
      return;
    }
    if (request.operation->opcode == abi::kRdmaRead && request.operation->payload) {
      get_bytes_.fetch_add(request.size, std::memory_order_relaxed);
    }
    return sends_.End(request, Status(), ended);
  }
  const std::string what = TextOf(completion);
  Status status(StatusCode::kUnavailable, what);
  if (completion.status == abi::kRemoteAccessError ||
      completion.status == abi::kRemoteInvalidRequest) {
    status =
        Status(StatusCode::kInvalidArgument, "the peer's device refused the access, by " + what);
  } else if (completion.status == abi::kFlushed && !status_.ok()) {
    status = status_;
  }
  Fail("the RDMA connection has failed: " + what, ended);
  if (request.operation) sends_.End(request, status, ended);
}

std::string QueuePair::TextOf(const abi::WorkCompletion& completion) const {
  if (completion.status == abi::kFlushed && device_->iwarp()) {
    return device_->name() + ": the peer's end has gone, or it has refused an access";
  }
  const char* const text = device_->library().wc_status_str(completion.status);
  return device_->name() + ": " + (text != nullptr ? text : "unknown error");
}

void QueuePair::Fail(const std::string& why, Operations* ended) {
  End(Status(StatusCode::kUnavailable, why), ended);
}

void QueuePair::FailPosting(int error, Operations* ended) {
  Fail(ErrnoStatus(error, "posting to " + device_->name()).message(), ended);
}

bool QueuePair::Poll() {
  bool more = false;
  Locked([&](Operations* ended) {
    const int sent = TakeSent(ended);
    const int received = TakeReceived(ended);
    more = sent == kRound || received == kRound;
    if (sent > 0 && stopped_ && !sends_.busy()) DestroySoon(0);
  });
  return more;
}

void QueuePair::Progress() {
  if (device_->InChild()) return;
  Poll();
}

Status QueuePair::Usable() const {
  if (device_->InChild()) return device_->NotHere();
  std::lock_guard<std::mutex> lock(mu_);
  return status_;
}

// Armed first and polled then: what completes between the two gives an event. The queue of what is
// sent is armed again only where that is of use, and the failure of a frame that nobody waits for
// shows in what comes: the receive buffers are given back.
void QueuePair::OnCompletions(abi::CompletionQueue* queue) {
  Locked([&](Operations* ended) {
    if (queue == sent_) sent_armed_ = false;
    if (queue == received_) Arm(queue, ended);
  });
  if (Poll()) PollSoon();
}

// The others have their turn before the next round; without the reactor this would not run.
void QueuePair::PollSoon() {
  static_cast<void>(StartOnReactor([self = shared_from_this()] {
    if (self->Poll()) self->PollSoon();
  }));
}

void QueuePair::OnGidChange(const std::vector<abi::GidEntry>& table) {
  Locked([&](Operations* ended) {
    if (!own_name_.has_value()) return;
    const bool there = std::any_of(table.begin(), table.end(), [this](const abi::GidEntry& entry) {
      // One that was added again has another place, and the pair's has gone.
      return entry.gid == own_name_->gid && entry.index == own_name_->index;
    });
    if (there) return;
    Fail("the RDMA connection has failed: " + device_->name() + ": its address " +
             AddressText(*own_name_) + " has gone",
         ended);
  });
}

void QueuePair::OnFailure(const std::string& what) {
  Locked([&](Operations* ended) { Fail("the RDMA connection has failed: " + what, ended); });
}

}  // namespace ar_grpc::fabric::verbs
