// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/tensor_transfer.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "grpcpp/support/slice.h"
#include "tensorflow/core/common_runtime/dma_helper.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_tensor_coding.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/cpu_info.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"
#include "third_party/ar_grpc/base/wire.h"
#include "third_party/ar_grpc/protocol/chunks.h"
#include "third_party/ar_grpc/protocol/cost_model.h"
#include "third_party/ar_grpc/protocol/measure.h"
#include "third_party/ar_grpc/protocol/peers.h"
#include "third_party/ar_grpc/tensorflow/cpu_arena.h"
#include "third_party/ar_grpc/tensorflow/unique_id.h"

namespace ar_grpc {
namespace {

using protocol::NodeId;
using protocol::Peers;
using protocol::Protocol;
using tensorflow::Tensor;

// The types of the options; a change of their contents gets a new name.
constexpr char kAskType[] = "ar-grpc/ask.2";
constexpr char kOfferType[] = "ar-grpc/offer.2";
constexpr char kChunkType[] = "ar-grpc/chunk.1";

// Larger tensors are copied in parts, by as many cores as are free.
constexpr uint64_t kCopyPart = uint64_t{256} << 10;
constexpr int kMaxCopiers = 4;
// And larger ones yet by the pool alone: the thread that received the response polls for others.
constexpr uint64_t kCopyHere = uint64_t{4} << 20;
// How long a call may take for a chunk of a tensor that could not be read: a peer that has gone
// must not cost more.
constexpr int64_t kLateCallMs = 5000;

struct Ask {
  NodeId receiver{};
  uint64_t ticket = 0;
};

struct OfferOf {
  NodeId sender{};
  uint64_t ticket = 0;
  uint64_t size = 0;
  // Whether it lies at `offset` of the sender's region and is held while `link` is open; else it is
  // fetched in chunks.
  bool readable = false;
  uint64_t offset = 0;
  protocol::LinkId link{};
};

struct ChunkOf {
  NodeId receiver{};
  uint64_t ticket = 0;
  uint64_t offset = 0;
  // 0: the tensor is released.
  uint64_t length = 0;
};

void Pack(const char* type, Writer* writer, google::protobuf::Any* into) {
  into->set_type_url(type);
  into->set_value(writer->Take());
}

void PackAsk(const Ask& ask, google::protobuf::Any* into) {
  Writer writer;
  writer.Put(ask.receiver);
  writer.Put(ask.ticket);
  Pack(kAskType, &writer, into);
}

std::optional<Ask> UnpackAsk(const google::protobuf::Any& options) {
  Ask ask;
  if (options.type_url() != kAskType) return std::nullopt;
  Reader reader(options.value());
  if (!reader.Get(&ask.receiver) || !reader.Get(&ask.ticket) || !reader.AtEnd()) {
    return std::nullopt;
  }
  return ask;
}

void PackOffer(const OfferOf& offer, google::protobuf::Any* into) {
  Writer writer;
  writer.Put(offer.sender);
  writer.Put(offer.ticket);
  writer.Put(offer.size);
  writer.Put(static_cast<uint8_t>(offer.readable));
  writer.Put(offer.offset);
  writer.Put(offer.link);
  Pack(kOfferType, &writer, into);
}

std::optional<OfferOf> UnpackOffer(const std::string& bytes) {
  OfferOf offer;
  uint8_t readable = 0;
  Reader reader(bytes);
  if (!reader.Get(&offer.sender) || !reader.Get(&offer.ticket) || !reader.Get(&offer.size) ||
      !reader.Get(&readable) || readable > 1 || !reader.Get(&offer.offset) ||
      !reader.Get(&offer.link) || !reader.AtEnd()) {
    return std::nullopt;
  }
  offer.readable = readable == 1;
  return offer;
}

void PackChunk(const ChunkOf& chunk, google::protobuf::Any* into) {
  Writer writer;
  writer.Put(chunk.receiver);
  writer.Put(chunk.ticket);
  writer.Put(chunk.offset);
  writer.Put(chunk.length);
  Pack(kChunkType, &writer, into);
}

// The tables for a tensor outside (0) and inside (1) of the offered region, for a peer that can
// only stream (0) and one that can read (1).
const std::vector<protocol::Row>& Table(bool one_sided, bool in_region) {
  static const auto* const tables = [] {
    auto* const made = new std::array<std::array<std::vector<protocol::Row>, 2>, 2>;
    for (const bool can_read : {false, true}) {
      protocol::Figures figures = protocol::MeasuredSharedMemory();
      figures.one_sided = can_read;
      for (const bool inside : {false, true}) {
        (*made)[can_read][inside] = protocol::Envelope(figures, inside);
      }
    }
    return made;
  }();
  return (*tables)[one_sided][in_region];
}

tensorflow::Status TooLarge(const Tensor& tensor) {
  return tensorflow::errors::InvalidArgument(
      "a tensor of ", tensor.TotalBytes(), " bytes, shape ", tensor.shape().DebugString(),
      ", does not fit into one message of 2 GiB, and the peer cannot fetch it in parts: run the "
      "peer with grpc+ar, too, or split the tensor");
}

// What an offer keeps.
struct Kept {
  Tensor tensor;
  std::function<void()> released;

  explicit Kept(Tensor kept) : tensor(std::move(kept)) {}
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    if (released) released();
  }
};

// Offers `tensor` if that is how it travels best; then `released`, if any, is called once its
// memory is not read any more. nullopt: it is to be sent in the message.
std::optional<OfferOf> TryOffer(const Ask& ask, const Tensor& tensor,
                                std::function<void()> released) {
  const uint64_t size = tensor.TotalBytes();
  const CpuArena* const arena = CpuArena::Get();
  // Before the offer, so that it is held as long as this link is open.
  std::optional<protocol::LinkId> link;
  if (arena != nullptr) link = Peers::Get().ReadBy(ask.receiver);
  const bool can_read = link.has_value();
  std::optional<uint64_t> offset;
  if (can_read) offset = arena->Offset(tensor.tensor_data().data(), size);
  const Protocol chosen = protocol::Choose(Table(can_read, offset.has_value()), size);
  if (chosen == Protocol::kEager) return std::nullopt;

  Tensor offered = tensor;
  if (chosen == Protocol::kStagedRendezvous) {
    Tensor staged(tensorflow::cpu_allocator(), tensor.dtype(), tensor.shape());
    if (staged.IsInitialized()) {
      const tensorflow::StringPiece from = tensor.tensor_data();
      std::memcpy(const_cast<char*>(staged.tensor_data().data()), from.data(), from.size());
      offset = arena->Offset(staged.tensor_data().data(), size);
    }
    if (offset.has_value()) {
      offered = staged;
      Peers::Get().CountStaged(size);
    } else if (size <= protocol::kEagerLimit) {
      // The arena is full.
      return std::nullopt;
    }
  }
  OfferOf offer;
  offer.sender = Peers::Get().self();
  offer.ticket = ask.ticket;
  offer.size = size;
  offer.readable = offset.has_value();
  offer.offset = offset.value_or(0);
  offer.link = link.value_or(protocol::LinkId{});
  const auto kept = std::make_shared<Kept>(std::move(offered));
  kept->released = std::move(released);
  protocol::Offered held;
  held.data = reinterpret_cast<const uint8_t*>(kept->tensor.tensor_data().data());
  held.size = size;
  held.keep = kept;
  if (!Peers::Get().Offer(ask.receiver, ask.ticket, std::move(held))) {
    kept->released = nullptr;
    return std::nullopt;
  }
  return offer;
}

// Nodes that answered with an offer, by task, so that a call that failed is taken back there only.
class KnownSenders {
 public:
  static KnownSenders& Get() {
    static KnownSenders* const senders = new KnownSenders;
    return *senders;
  }
  void Remember(const std::string& target, const NodeId& node) {
    std::lock_guard<std::mutex> lock(mu_);
    nodes_[target] = node;
  }
  std::optional<NodeId> Find(const std::string& target) {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = nodes_.find(target);
    if (found == nodes_.end()) return std::nullopt;
    return found->second;
  }

 private:
  std::mutex mu_;
  std::map<std::string, NodeId> nodes_;
};

Status Cancelled() { return {StatusCode::kCancelled, "the step was cancelled"}; }

// One tensor's way out of a peer's region. Whoever calls Work copies parts until none is left, so a
// thread that comes late, or never, delays nothing.
class CopyInParts : public std::enable_shared_from_this<CopyInParts> {
 public:
  // `landing` lives until `done` is called.
  CopyInParts(std::shared_ptr<protocol::Link> link, uint64_t from, uint8_t* into, uint64_t size,
              protocol::Landing* landing, std::function<void(const Status&)> done)
      : link_(std::move(link)),
        from_(from),
        into_(into),
        size_(size),
        landing_(landing),
        done_(std::move(done)),
        parts_(std::max<uint64_t>((size + kCopyPart - 1) / kCopyPart, 1)),
        left_(parts_) {}

  // How many threads have work.
  int copiers() const {
    return static_cast<int>(
        std::min<uint64_t>(std::min(kMaxCopiers, tensorflow::port::MaxParallelism()), parts_));
  }

  void Work() {
    for (;;) {
      const uint64_t part = next_.fetch_add(1);
      if (part >= parts_) return;
      if (!landing_->Enter()) {
        Ended(Cancelled());
        continue;
      }
      const uint64_t offset = part * kCopyPart;
      link_->connection()->Get(from_ + offset, into_ + offset, std::min(kCopyPart, size_ - offset),
                               [self = shared_from_this()](const Status& status) {
                                 self->landing_->Leave();
                                 self->Ended(status);
                               });
    }
  }

 private:
  void Ended(const Status& status) {
    if (!status.ok()) {
      std::lock_guard<std::mutex> lock(mu_);
      status_ = status;
    }
    if (left_.fetch_sub(1) > 1) return;
    std::unique_lock<std::mutex> lock(mu_);
    const Status all = status_;
    lock.unlock();
    done_(all);
  }

  const std::shared_ptr<protocol::Link> link_;
  const uint64_t from_;
  uint8_t* const into_;
  const uint64_t size_;
  protocol::Landing* const landing_;
  const std::function<void(const Status&)> done_;
  const uint64_t parts_;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> left_;  // parts that have not ended
  std::mutex mu_;
  Status status_;
};

Status FromTensorFlow(const tensorflow::Status& status) {
  if (status.ok()) return OkStatus();
  return Status(static_cast<StatusCode>(status.code()), std::string(status.message()));
}

}  // namespace

// --- the sender's side ---

tensorflow::Status EncodeTensor(const tensorflow::RecvTensorRequest& request, bool is_dead,
                                const Tensor& tensor, bool require_ack,
                                ::grpc::ByteBuffer* response) {
  const bool plain = is_dead || !tensorflow::DataTypeCanUseMemcpy(tensor.dtype());
  const std::optional<Ask> ask = UnpackAsk(request.transport_options());
  if (ask.has_value() && !plain) {
    if (const std::optional<OfferOf> offer = TryOffer(*ask, tensor, nullptr)) {
      tensorflow::RecvTensorResponse message;
      message.mutable_tensor()->set_dtype(tensor.dtype());
      tensor.shape().AsProto(message.mutable_tensor()->mutable_tensor_shape());
      message.set_require_ack(require_ack);
      message.set_send_start_micros(tensorflow::Env::Default()->NowMicros());
      PackOffer(*offer, message.mutable_transport_options());
      tensorflow::grpc::EncodeRecvTensorResponseToByteBuffer(message, response);
      return tensorflow::OkStatus();
    }
  }
  if (static_cast<uint64_t>(tensor.TotalBytes()) > protocol::kEagerLimit) return TooLarge(tensor);
  tensorflow::grpc::EncodeTensorToByteBuffer(is_dead, tensor, require_ack, response);
  return tensorflow::OkStatus();
}

bool ServeChunk(const tensorflow::RecvTensorRequest& request, ::grpc::ByteBuffer* response,
                tensorflow::Status* status) {
  if (request.transport_options().type_url() != kChunkType) return false;
  ChunkOf chunk;
  Reader reader(request.transport_options().value());
  if (!reader.Get(&chunk.receiver) || !reader.Get(&chunk.ticket) || !reader.Get(&chunk.offset) ||
      !reader.Get(&chunk.length) || !reader.AtEnd()) {
    *status = tensorflow::errors::InvalidArgument("malformed request for a chunk of a tensor");
    return true;
  }
  *status = tensorflow::OkStatus();
  if (chunk.length == 0) {
    Peers::Get().Release(chunk.receiver, chunk.ticket);
    return true;
  }
  const std::optional<protocol::Offered> offered = Peers::Get().Find(chunk.receiver, chunk.ticket);
  if (!offered.has_value()) {
    *status = tensorflow::errors::Unavailable("the tensor is not offered any more");
    return true;
  }
  if (chunk.offset > offered->size || chunk.length > offered->size - chunk.offset ||
      chunk.length > protocol::kChunkBytes) {
    *status = tensorflow::errors::InvalidArgument("a chunk of ", chunk.length, " bytes at ",
                                                  chunk.offset, " of a tensor of ", offered->size);
    return true;
  }
  auto keep = std::make_unique<std::shared_ptr<const void>>(offered->keep);
  ::grpc::Slice slice(
      const_cast<uint8_t*>(offered->data + chunk.offset), chunk.length,
      [](void* kept) {
        std::unique_ptr<std::shared_ptr<const void>>(
            static_cast<std::shared_ptr<const void>*>(kept));
      },
      keep.release());
  ::grpc::ByteBuffer bytes(&slice, 1);
  response->Swap(&bytes);
  return true;
}

bool OfferBuffer(const tensorflow::RecvBufRequest& request, const Tensor& tensor,
                 std::function<void()> sent, tensorflow::RecvBufResponse* response,
                 tensorflow::Status* status) {
  *status = tensorflow::OkStatus();
  const std::optional<Ask> ask = UnpackAsk(request.transport_options());
  if (ask.has_value() && sent != nullptr) {
    if (const std::optional<OfferOf> offer = TryOffer(*ask, tensor, std::move(sent))) {
      PackOffer(*offer, response->mutable_transport_options());
      return true;
    }
  }
  if (static_cast<uint64_t>(tensor.TotalBytes()) > protocol::kEagerLimit) {
    *status = TooLarge(tensor);
  }
  return false;
}

// --- the receiver's side ---

bool ParseChunk(::grpc::ByteBuffer* source, Caller::Chunk* chunk) {
  if (source->Length() != chunk->size) return false;
  if (chunk->size == 0) return true;
  std::vector<::grpc::Slice> slices;
  if (!source->Dump(&slices).ok() || !chunk->landing->Enter()) return false;
  uint8_t* into = chunk->into;
  for (const ::grpc::Slice& slice : slices) {
    std::memcpy(into, slice.begin(), slice.size());
    into += slice.size();
  }
  chunk->landing->Leave();
  return true;
}

std::shared_ptr<tensorflow::CallOptions> Cancellable::Begin() {
  std::lock_guard<std::mutex> lock(mu_);
  if (cancelled_) return nullptr;
  return *running_.insert(std::make_shared<tensorflow::CallOptions>()).first;
}

void Cancellable::End(const std::shared_ptr<tensorflow::CallOptions>& call) {
  std::lock_guard<std::mutex> lock(mu_);
  running_.erase(call);
}

void Cancellable::Cancel() {
  std::unique_lock<std::mutex> lock(mu_);
  cancelled_ = true;
  const auto running = running_;
  lock.unlock();
  for (const auto& call : running) call->StartCancel();
}

bool Cancellable::cancelled() {
  std::lock_guard<std::mutex> lock(mu_);
  return cancelled_;
}

Receipt::Receipt(std::shared_ptr<const Caller> caller)
    : caller_(std::move(caller)), ticket_(static_cast<uint64_t>(UniqueId())) {}

std::shared_ptr<Receipt> Receipt::ForTensor(tensorflow::DeviceBase* device,
                                            std::shared_ptr<const Caller> caller) {
  // Towards an accelerator the bytes go through TensorFlow's own copy.
  if (!Peers::Get().Any() || device == nullptr ||
      device->tensorflow_accelerator_device_info() != nullptr) {
    return nullptr;
  }
  return std::shared_ptr<Receipt>(new Receipt(std::move(caller)));
}

std::shared_ptr<Receipt> Receipt::ForBuffer(std::shared_ptr<const Caller> caller) {
  if (!Peers::Get().Any()) return nullptr;
  return std::shared_ptr<Receipt>(new Receipt(std::move(caller)));
}

void Receipt::Ask(tensorflow::RecvTensorRequest* request) const {
  PackAsk({Peers::Get().self(), ticket_}, request->mutable_transport_options());
}

void Receipt::Ask(tensorflow::RecvBufRequest* request) const {
  PackAsk({Peers::Get().self(), ticket_}, request->mutable_transport_options());
}

tensorflow::CallOptions* Receipt::Begin(tensorflow::CallOptions* options) {
  if (options == nullptr) return nullptr;
  options_ = options;
  call_.SetTimeout(options->GetTimeout());
  options->SetCancelCallback([self = shared_from_this()] { self->Cancel(); });
  return &call_;
}

void Receipt::Cancel() {
  // In this order: what ends because of the calls must find that no more is to be begun.
  landing_.TakeBack();
  chunks_.Cancel();
  call_.StartCancel();
}

void Receipt::End(const tensorflow::Status& status, const tensorflow::StatusCallback& done) {
  // Waits for a cancel under way.
  if (options_ != nullptr) options_->ClearCancelCallback();
  done(status);
}

void Receipt::Finish(const tensorflow::Status& status, tensorflow::TensorResponse* response,
                     tensorflow::StatusCallback done) {
  if (!status.ok()) {
    GiveUp();
    return End(status, done);
  }
  const google::protobuf::Any& any = response->metadata().transport_options();
  if (any.type_url() != kOfferType) {
    // So marked, it may answer another try of a call that has got an offer.
    if (response->metadata().require_ack()) GiveUp();
    return End(status, done);
  }
  const Tensor& tensor = response->tensor();
  if (!tensorflow::DataTypeCanUseMemcpy(tensor.dtype())) {
    GiveUp();
    return End(tensorflow::errors::Internal(
                   caller_->target, " offered the memory of a tensor of type ",
                   tensorflow::DataTypeString(tensor.dtype()), ", whose elements lie elsewhere"),
               done);
  }
  // The parser made the tensor by the response's type and shape, without contents.
  const tensorflow::StringPiece into = tensor.tensor_data();
  Fetch(any.value(),
        {reinterpret_cast<uint8_t*>(const_cast<char*>(into.data())), into.size(), std::move(done)});
}

void Receipt::Finish(const tensorflow::Status& status, const tensorflow::RecvBufRequest& request,
                     tensorflow::RecvBufResponse* response, tensorflow::StatusCallback done) {
  if (!status.ok()) {
    GiveUp();
    return End(status, done);
  }
  if (response->transport_options().type_url() != kOfferType) {
    if (response->require_ack()) GiveUp();
    return End(status, done);
  }
  const std::string offer = response->transport_options().value();
  // Without options the caller takes the bytes to be where buf_ptr says.
  response->clear_transport_options();
  Fetch(offer, {reinterpret_cast<uint8_t*>(request.buf_ptr()),
                static_cast<uint64_t>(request.num_bytes()), std::move(done)});
}

void Receipt::Fetch(const std::string& bytes, Target target) {
  const std::optional<OfferOf> offer = UnpackOffer(bytes);
  if (!offer.has_value() || offer->ticket != ticket_ || offer->size != target.size) {
    GiveUp();
    return End(
        tensorflow::errors::Internal(caller_->target, " offered ",
                                     offer.has_value() ? absl::StrCat(offer->size, " bytes") : "?",
                                     " where ", target.size, " were asked for"),
        target.done);
  }
  KnownSenders::Get().Remember(caller_->target, offer->sender);
  if (!offer->readable) return FetchChunks(std::move(target), /*late=*/false);
  const std::shared_ptr<protocol::Link> link = Peers::Get().Reading(offer->sender, offer->link);
  // Where the link has gone, the sender may hold the tensor all the same, for another link.
  if (link == nullptr) return FetchChunks(std::move(target), /*late=*/true);
  uint8_t* const into = target.into;
  const uint64_t size = target.size;
  auto ended = [self = shared_from_this(), link, target = std::move(target)](const Status& status) {
    // The sender held the tensor when it named the link, so if that is still open, it was held
    // during the copy.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (link->closed()) return self->FetchChunks(target, /*late=*/true);
    link->Release(self->ticket_);
    if (!status.ok()) return self->End(self->Annotated(status), target.done);
    Peers::Get().CountRendezvous(target.size);
    self->End(tensorflow::OkStatus(), target.done);
  };
  auto copy =
      std::make_shared<CopyInParts>(link, offer->offset, into, size, &landing_, std::move(ended));
  const bool here = caller_->threadpool == nullptr || size <= kCopyHere;
  for (int i = here ? 1 : 0; caller_->threadpool != nullptr && i < copy->copiers(); ++i) {
    caller_->threadpool->Schedule([copy] { copy->Work(); });
  }
  if (here) copy->Work();
}

void Receipt::FetchChunks(Target target, bool late) {
  uint8_t* const into = target.into;
  const uint64_t size = target.size;
  auto ended = [self = shared_from_this(), target = std::move(target), late](const Status& status) {
    if (!status.ok()) {
      self->GiveUp();
      if (self->landing_.taken_back()) {
        return self->End(self->Annotated(Cancelled()), target.done);
      }
      // Whatever listens there now: the peer that offered the tensor cannot be reached.
      return self->End(
          self->Annotated(late ? Status(StatusCode::kUnavailable,
                                        absl::StrCat("the connection ended while the tensor was "
                                                     "read: ",
                                                     status.message()))
                               : status),
          target.done);
    }
    self->ReleaseByCall();
    Peers::Get().CountChunk(target.size);
    self->End(tensorflow::OkStatus(), target.done);
  };
  auto start = [self = shared_from_this(), into, late](uint64_t offset, uint64_t length,
                                                       std::function<void(Status)> done) {
    tensorflow::RecvTensorRequest request;
    PackChunk({Peers::Get().self(), self->ticket_, offset, length},
              request.mutable_transport_options());
    auto chunk =
        std::make_shared<Caller::Chunk>(Caller::Chunk{into + offset, length, &self->landing_});
    const auto call = self->chunks_.Begin();
    if (call == nullptr) return done(Cancelled());
    if (late) call->SetTimeout(kLateCallMs);
    self->caller_->call(call.get(), request, chunk.get(),
                        [self, chunk, call, done](const tensorflow::Status& status) {
                          self->chunks_.End(call);
                          done(FromTensorFlow(status));
                        });
    // Cancelled before the call could hear of it.
    if (self->chunks_.cancelled()) call->StartCancel();
  };
  protocol::TransferChunks(size, protocol::kChunkBytes, protocol::kChunksInFlight, std::move(start),
                           std::move(ended));
}

void Receipt::GiveUp() const {
  const std::optional<NodeId> sender = KnownSenders::Get().Find(caller_->target);
  if (sender.has_value()) {
    if (const auto link = Peers::Get().Talking(*sender)) return link->Release(ticket_);
  }
  // A stock peer takes it for a question about no tensor.
  ReleaseByCall();
}

void Receipt::ReleaseByCall() const {
  tensorflow::RecvTensorRequest release;
  PackChunk({Peers::Get().self(), ticket_, 0, 0}, release.mutable_transport_options());
  auto nothing = std::make_shared<Caller::Chunk>();
  caller_->call(nullptr, release, nothing.get(), [nothing](const tensorflow::Status&) {});
}

tensorflow::Status Receipt::Annotated(const Status& status) const {
  // ClusterCoordinator tells whose failure it was by this text, as gRPC's errors have it.
  return tensorflow::Status(
      static_cast<absl::StatusCode>(status.code()),
      absl::StrCat(status.message(), "\nAdditional GRPC error information from remote target ",
                   caller_->target, " while calling RecvTensor"));
}

}  // namespace ar_grpc
