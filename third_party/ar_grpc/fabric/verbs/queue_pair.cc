// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/fabric/verbs/queue_pair.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "third_party/ar_grpc/base/log.h"
#include "third_party/ar_grpc/base/os.h"
#include "third_party/ar_grpc/base/random.h"
#include "third_party/ar_grpc/base/reactor.h"

namespace ar_grpc::fabric::verbs {
namespace {

constexpr uint32_t kPsnMask = (1 << 24) - 1;
constexpr uint64_t kLargestRequest = uint64_t{1} << 30;
// Completions of one round.
constexpr int kRound = 64;
// A packet is sent again when no answer came for 4.096 us * 2^16 = 0.27 s, and six times: a peer
// that has gone is noticed in two seconds or a few, and a round trip of 1 s is none too long. Not
// seven times: Soft-RoCE takes that for "for ever".
constexpr uint8_t kTimeout = 16;
constexpr uint8_t kRetries = 6;
// Nothing here waits for a receive buffer, but a device may say "not ready" of a page.
constexpr uint8_t kRnrRetries = 6;
constexpr uint8_t kMinRnrTimer = 12;
constexpr uint8_t kHops = 64;
// What the device has not given back by then it is made to, by the end of the queue pair.
constexpr int kDrainMs = 2000;

Status Closed() { return Status(StatusCode::kUnavailable, "the RDMA connection is closed"); }

}  // namespace

StatusOr<std::shared_ptr<QueuePair>> QueuePair::Create(std::shared_ptr<Device> device) {
  if (device->InChild()) return device->NotHere();
  const std::shared_ptr<QueuePair> made(new QueuePair(std::move(device)));
  if (Status status = made->Prepare(); !status.ok()) return status;
  made->device_->Add(made->queue_, made->pair_, made);
  return made;
}

QueuePair::QueuePair(std::shared_ptr<Device> device)
    : device_(std::move(device)),
      first_psn_(static_cast<uint32_t>(RandomSeed()) & kPsnMask),
      seal_(RandomSeed()) {}

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
  abi::QueuePairAttributes attributes = {};
  attributes.state = abi::kStateInit;
  attributes.port = device_->port();
  attributes.access = abi::kAccessRemoteRead | abi::kAccessRemoteWrite;
  const int set = abi::kSetState | abi::kSetPkeyIndex | abi::kSetPort | abi::kSetAccess;
  if (Status status = Modify(pair_, attributes, set, "initialized"); !status.ok()) return status;
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

Status QueuePair::Modify(abi::QueuePair* pair, abi::QueuePairAttributes attributes, int set,
                         const char* what) {
  const int error = device_->library().modify_qp(pair, &attributes, set);
  if (error == 0) return Status();
  return DeviceStatus(error, "a queue pair of " + device_->name() + " cannot be " + what);
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
  Status status = ModifyToConnected(pair, port, peer);
  std::lock_guard<std::mutex> lock(mu_);
  connecting_ = false;
  if (stopped_) DestroySoon(0);
  return status_.ok() ? status : status_;
}

Status QueuePair::ModifyToConnected(abi::QueuePair* pair, const Device::Port& port,
                                    const Hello& peer) {
  const StatusOr<Route> route = FindRoute(port.address, peer.address);
  if (!route.ok()) return route.status();
  const Limits& limits = device_->limits();
  const uint8_t reads = std::min(limits.most_reads, peer.most_served_reads);
  const uint8_t served = std::min(limits.most_served_reads, peer.most_reads);
  if (reads == 0 || served == 0) {
    return Status(StatusCode::kUnavailable, "the peer's RDMA device does not do RDMA READ");
  }
  abi::QueuePairAttributes attributes = {};
  attributes.state = abi::kStateReadyToReceive;
  attributes.mtu = std::min(port.mtu, peer.mtu);
  attributes.peer = peer.number;
  attributes.receive_psn = peer.first_psn;
  attributes.max_served_reads = served;
  attributes.min_rnr_timer = kMinRnrTimer;
  attributes.address.port = device_->port();
  attributes.address.lid = route->peer_lid;
  if (port.address.link_layer == abi::kLinkLayerEthernet) {
    attributes.address.is_global = 1;
    attributes.address.gid = route->peer.gid;
    attributes.address.gid_index = route->own_index;
    attributes.address.hop_limit = kHops;
  }
  int set = abi::kSetState | abi::kSetAddress | abi::kSetMtu | abi::kSetPeer | abi::kSetReceivePsn |
            abi::kSetMaxServedReads | abi::kSetMinRnrTimer;
  Status status = Modify(pair, attributes, set, "connected to the peer's");
  if (!status.ok()) return status;
  attributes.state = abi::kStateReadyToSend;
  attributes.send_psn = first_psn_;
  attributes.timeout = kTimeout;
  attributes.retries = kRetries;
  attributes.rnr_retries = kRnrRetries;
  attributes.max_reads = reads;
  set = abi::kSetState | abi::kSetSendPsn | abi::kSetTimeout | abi::kSetRetries |
        abi::kSetRnrRetries | abi::kSetMaxReads;
  return Modify(pair, attributes, set, "made ready to send");
}

void QueuePair::Finish(const Operations& finished) {
  for (const std::shared_ptr<Operation>& operation : finished) {
    // Before the memory: it may go with `keep`, and a device must not have it any more then.
    operation->region.reset();
    if (operation->done) operation->done(operation->status);
    operation->keep.reset();
  }
}

void QueuePair::Submit(std::shared_ptr<Operation> operation) {
  Operations finished;
  if (device_->InChild()) {
    operation->status = device_->NotHere();
    return Finish({operation});
  }
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (status_.ok()) {
      waiting_.push_back(std::move(operation));
      Post(&finished);
    } else {
      operation->status = status_;
      finished.push_back(std::move(operation));
    }
  }
  Finish(finished);
}

void QueuePair::Post(Operations* finished) {
  const size_t most = static_cast<size_t>(device_->limits().requests);
  while (status_.ok() && !waiting_.empty() && posted_.size() < most) {
    const std::shared_ptr<Operation> operation = waiting_.front();
    if (const int error = PostNext(operation.get()); error != 0) {
      Fail(Status(StatusCode::kUnavailable,
                  ErrnoStatus(error, "posting to " + device_->name()).message()),
           finished);
      return;
    }
    if (operation->posted == operation->size) waiting_.pop_front();
  }
}

int QueuePair::PostNext(Operation* operation) {
  const uint64_t most = std::min<uint64_t>(kLargestRequest, device_->limits().message_bytes);
  const uint64_t size = std::min(operation->size - operation->posted, most);
  abi::Piece piece = {};
  piece.address = operation->local + operation->posted;
  piece.length = static_cast<uint32_t>(size);
  piece.lkey = operation->region->lkey();
  abi::SendRequest request = {};
  request.id = last_id_ + 1;
  request.pieces = &piece;
  request.count = 1;
  request.opcode = operation->opcode;
  request.flags = abi::kSignaled;
  request.remote_address = operation->remote + operation->posted;
  request.rkey = operation->rkey;
  abi::SendRequest* refused = nullptr;
  const int error = pair_->context->operations.post_send(pair_, &request, &refused);
  if (error != 0) return error;
  ++last_id_;
  operation->posted += size;
  ++operation->outstanding;
  posted_.push_back({request.id, size, waiting_.front()});
  return 0;
}

int QueuePair::TakeCompletions(int most, Operations* finished) {
  if (queue_ == nullptr) return 0;
  std::array<abi::WorkCompletion, kRound> completions;
  most = std::min(most, kRound);
  const int count = queue_->context->operations.poll_cq(queue_, most, completions.data());
  if (count < 0) {
    Fail(Status(StatusCode::kUnavailable, device_->name() + " gives no completions"), finished);
    return 0;
  }
  for (int i = 0; i < count; ++i) TakeCompletion(completions[i], finished);
  Post(finished);
  return count;
}

void QueuePair::TakeCompletion(const abi::WorkCompletion& completion, Operations* finished) {
  // A send queue completes in order.
  if (posted_.empty() || posted_.front().id != completion.id) {
    Fail(Status(StatusCode::kInternal, device_->name() + " completed what was not asked for"),
         finished);
    return;
  }
  const Request request = std::move(posted_.front());
  posted_.pop_front();
  Operation& operation = *request.operation;
  if (completion.status == abi::kCompleted) {
    if (operation.opcode == abi::kRdmaRead) {
      get_bytes_.fetch_add(request.size, std::memory_order_relaxed);
    }
  } else {
    const char* const text = device_->library().wc_status_str(completion.status);
    const std::string what = device_->name() + ": " + (text != nullptr ? text : "unknown error");
    const bool refused = completion.status == abi::kRemoteAccessError ||
                         completion.status == abi::kRemoteInvalidRequest;
    const bool flushed = completion.status == abi::kFlushed && !status_.ok();
    if (operation.status.ok()) {
      if (flushed) {
        operation.status = status_;
      } else if (refused) {
        operation.status = Status(StatusCode::kInvalidArgument,
                                  "the peer's device refused the access, by " + what);
      } else {
        operation.status = Status(StatusCode::kUnavailable, what);
      }
    }
    Fail(Status(StatusCode::kUnavailable, "the RDMA connection has failed: " + what), finished);
  }
  --operation.outstanding;
  EndIfOver(request.operation, finished);
}

void QueuePair::EndIfOver(const std::shared_ptr<Operation>& operation, Operations* finished) {
  const bool whole = operation->posted == operation->size;
  if (operation->ended || operation->outstanding > 0 || (!whole && status_.ok())) return;
  if (!whole && operation->status.ok()) operation->status = status_;
  operation->ended = true;
  finished->push_back(operation);
}

void QueuePair::Fail(Status status, Operations* finished) {
  if (status_.ok()) {
    status_ = std::move(status);
    closed_.store(true, std::memory_order_release);
  }
  Stop(finished);
}

// What waits ends here; what is posted ends with its completion, or with the queue pair.
void QueuePair::Stop(Operations* finished) {
  if (stopped_) return;
  stopped_ = true;
  for (const std::shared_ptr<Operation>& operation : waiting_) EndIfOver(operation, finished);
  waiting_.clear();
  if (pair_ != nullptr) {
    abi::QueuePairAttributes attributes = {};
    attributes.state = abi::kStateError;
    // One that cannot be stopped is destroyed.
    static_cast<void>(Modify(pair_, attributes, abi::kSetState, "stopped"));
  }
  DestroySoon(posted_.empty() ? 0 : kDrainMs);
}

int QueuePair::Poll(int most) {
  Operations finished;
  int count = 0;
  {
    std::lock_guard<std::mutex> lock(mu_);
    count = TakeCompletions(most, &finished);
    if (count > 0 && stopped_ && posted_.empty()) DestroySoon(0);
  }
  Finish(finished);
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
  Operations finished;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (queue_ == nullptr) return;
    const int error = queue_->context->operations.req_notify_cq(queue_, 0);
    if (error != 0) {
      Fail(Status(StatusCode::kUnavailable,
                  ErrnoStatus(error, "asking " + device_->name() + " for events").message()),
           &finished);
    }
  }
  Finish(finished);
  if (Poll(kRound) < kRound) return;
  // The others have their turn before the next round; without the reactor this would not run.
  static_cast<void>(StartOnReactor([self = shared_from_this()] { self->OnCompletions(); }));
}

void QueuePair::OnFailure(const std::string& what) {
  Operations finished;
  {
    std::lock_guard<std::mutex> lock(mu_);
    Fail(Status(StatusCode::kUnavailable, "the RDMA connection has failed: " + what), &finished);
  }
  Finish(finished);
}

void QueuePair::Close(std::function<void()> done) {
  if (device_->InChild()) {
    if (done) done();
    return;
  }
  bool first = false;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (!gone_) {
      if (done) closers_.push_back(std::exchange(done, nullptr));
      first = !std::exchange(closing_, true);
    }
    if (status_.ok()) status_ = Closed();
    closed_.store(true, std::memory_order_release);
  }
  if (done) done();
  // The reactor has run since the device was opened.
  if (first) {
    static_cast<void>(StartOnReactor([self = shared_from_this()] { self->FinishClosing(); }));
  }
}

void QueuePair::FinishClosing() {
  Operations finished;
  {
    std::lock_guard<std::mutex> lock(mu_);
    Stop(&finished);
  }
  Finish(finished);
}

void QueuePair::DestroySoon(int delay_ms) {
  Reactor::Get().RunAfter(delay_ms, [self = shared_from_this()] { self->Destroy(); });
}

void QueuePair::Destroy() {
  Operations finished;
  abi::QueuePair* pair = nullptr;
  abi::CompletionQueue* queue = nullptr;
  {
    std::lock_guard<std::mutex> lock(mu_);
    if (connecting_ || pair_ == nullptr) return;  // Connect comes back; it was here before
    while (TakeCompletions(kRound, &finished) > 0) {
    }
    pair = std::exchange(pair_, nullptr);
  }
  Finish(finished);
  finished.clear();
  if (const int error = device_->library().destroy_qp(pair); error != 0) {
    // It may still write: what it was told to stays as it is, for ever.
    Log(Severity::kError,
        ErrnoStatus(error, "destroying a queue pair of " + device_->name()).message());
    return;
  }
  std::vector<std::function<void()>> closers;
  {
    std::lock_guard<std::mutex> lock(mu_);
    queue = std::exchange(queue_, nullptr);
    for (const Request& request : posted_) {
      Operation& operation = *request.operation;
      if (operation.status.ok()) operation.status = status_;
      --operation.outstanding;
      EndIfOver(request.operation, &finished);
    }
    posted_.clear();
    gone_ = true;
    closers = std::move(closers_);
  }
  device_->Remove(queue);
  if (const int error = device_->library().destroy_cq(queue); error != 0) {
    Log(Severity::kError, ErrnoStatus(error, "destroying a queue of " + device_->name()).message());
  }
  Finish(finished);
  for (const std::function<void()>& closer : closers) closer();
}

}  // namespace ar_grpc::fabric::verbs
