// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/tensorflow/mpi_tensor_channel.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "grpcpp/support/slice.h"
#include "tensorflow/core/distributed_runtime/rpc/grpc_tensor_coding.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/platform/env.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/util/device_name_utils.h"
#include "third_party/ar_grpc/tensorflow/mpi_tensor_peer.h"
#include "third_party/ar_grpc/tensorflow/run_later.h"

namespace ar_grpc {
namespace {

using tensorflow::Tensor;

// Whether its bytes are what MPI brings.
bool GoesByMpi(const Tensor& tensor) {
  return tensorflow::DataTypeCanUseMemcpy(tensor.dtype()) && tensor.TotalBytes() > 0;
}

Status OfAnotherJob(int rank) {
  return Status(StatusCode::kFailedPrecondition,
                "the two servers of grpc+mpi are not in one MPI job (this is rank " +
                    std::to_string(rank) + " of its own): start all of them by one mpirun");
}

// The name of the task that wants a buffer; empty where its request does not say.
std::string TaskOf(const tensorflow::RecvBufRequest& request) {
  tensorflow::DeviceNameUtils::ParsedName device;
  std::string task;
  if (tensorflow::DeviceNameUtils::ParseFullName(request.dst_device(), &device)) {
    (void)tensorflow::DeviceNameUtils::GetTaskName(device, &task);
  }
  return task;
}

}  // namespace

// The calls by which receivers watch this process, which stay open as long as both live.
class MpiTensorChannel::Watches : public std::enable_shared_from_this<Watches> {
 public:
  explicit Watches(mpi::Channel* channel) : channel_(channel) {}

  void Begin(const mpi::Watch& watch, tensorflow::CallOptions* options,
             const tensorflow::StatusCallback& done) {
    if (!ToBegin(watch, options, done)) done(tensorflow::OkStatus());
  }

  // The receiver has nothing more to receive. It may come before its watch does: they are two
  // calls.
  void Bye(const Token& id) {
    std::optional<Open> open = Take(id);
    if (open.has_value()) return open->done(tensorflow::OkStatus());
    std::lock_guard<std::mutex> lock(mu_);
    early_byes_.push_back(id);
    if (early_byes_.size() > kMostEarlyByes) early_byes_.pop_front();
  }

  // What `rank` waits for does not come: its watches end, so that it takes this process for lost,
  // as this one does it.
  void Fail(int rank, const tensorflow::Status& why) {
    channel_->Lose(rank);
    std::vector<Open> ended;
    {
      std::lock_guard<std::mutex> lock(mu_);
      for (auto each = open_.begin(); each != open_.end();) {
        const bool its = each->second.rank == rank;
        if (its) ended.push_back(std::move(each->second));
        each = its ? open_.erase(each) : std::next(each);
      }
    }
    for (Open& open : ended) open.done(why);
  }

 private:
  struct Open {
    int rank = 0;
    tensorflow::StatusCallback done;
  };

  static constexpr size_t kMostEarlyByes = 1024;

  // false: its bye has come before it. Under the lock to the end, so that a bye cannot end the
  // call, and `options` with it, meanwhile.
  bool ToBegin(const mpi::Watch& watch, tensorflow::CallOptions* options,
               const tensorflow::StatusCallback& done) {
    std::lock_guard<std::mutex> lock(mu_);
    const auto early = std::find(early_byes_.begin(), early_byes_.end(), watch.id);
    if (early != early_byes_.end()) {
      early_byes_.erase(early);
      return false;
    }
    // A name is random: it is there already where somebody plays with us.
    if (!open_.emplace(watch.id, Open{static_cast<int>(watch.rank), done}).second) return false;
    // Called under the call's locks, which `done` takes, too.
    options->SetCancelCallback([weak = weak_from_this(), id = watch.id] {
      RunLater([weak, id] {
        if (const auto self = weak.lock()) self->Broken(id);
      });
    });
    return true;
  }

  // Its TCP connection has ended without a bye: so has the process.
  void Broken(const Token& id) {
    std::optional<Open> open = Take(id);
    if (!open.has_value()) return;
    channel_->Lose(open->rank);
    open->done(tensorflow::errors::Cancelled("the watch was cancelled"));
  }

  std::optional<Open> Take(const Token& id) {
    std::lock_guard<std::mutex> lock(mu_);
    const auto found = open_.find(id);
    if (found == open_.end()) return std::nullopt;
    std::optional<Open> open = std::move(found->second);
    open_.erase(found);
    return open;
  }

  mpi::Channel* const channel_;
  std::mutex mu_;
  // Guarded by mu_.
  std::map<Token, Open> open_;
  std::deque<Token> early_byes_;
};

MpiTensorChannel::MpiTensorChannel(mpi::Channel* channel)
    : channel_(channel), watches_(std::make_shared<Watches>(channel)) {}

MpiTensorChannel::~MpiTensorChannel() = default;

std::shared_ptr<TensorPeer> MpiTensorChannel::NewPeer(std::shared_ptr<const TensorCaller> caller) {
  return NewMpiTensorPeer(channel_, std::move(caller));
}

bool MpiTensorChannel::ServeOwnCall(tensorflow::CallOptions* options,
                                    const tensorflow::RecvTensorRequest& request,
                                    ::grpc::ByteBuffer* response,
                                    const tensorflow::StatusCallback& done) {
  const std::string& type = request.transport_options().type_url();
  const std::string& value = request.transport_options().value();
  if (type == mpi::Hello::kType) {
    const StatusOr<mpi::Hello> hello = mpi::DecodeHello(value);
    const mpi::Job& job = channel_->job();
    if (hello.ok() && hello->job == job.token) {
      ::grpc::Slice slice(mpi::Encode(mpi::Hello{job.token, static_cast<uint32_t>(job.rank)}));
      ::grpc::ByteBuffer bytes(&slice, 1);
      response->Swap(&bytes);
      done(tensorflow::OkStatus());
    } else {
      done(ToTensorFlow(hello.ok() ? OfAnotherJob(job.rank) : hello.status()));
    }
    return true;
  }
  if (type == mpi::Watch::kType) {
    const StatusOr<mpi::Watch> watch = mpi::DecodeWatch(value);
    const mpi::Job& job = channel_->job();
    if (!watch.ok()) {
      done(ToTensorFlow(watch.status()));
    } else if (watch->job != job.token || watch->rank >= static_cast<uint32_t>(job.size)) {
      done(ToTensorFlow(OfAnotherJob(job.rank)));
    } else {
      watches_->Begin(*watch, options, done);
    }
    return true;
  }
  if (type == mpi::Bye::kType) {
    const StatusOr<mpi::Bye> bye = mpi::DecodeBye(value);
    if (bye.ok()) watches_->Bye(bye->watch);
    done(ToTensorFlow(bye.status()));
    return true;
  }
  return false;
}

Status MpiTensorChannel::Send(const google::protobuf::Any& options, const Tensor& tensor,
                              mpi::Done sent, mpi::Sent* answer) {
  const StatusOr<mpi::Ask> ask = mpi::DecodeAsk(options.value());
  if (!ask.ok()) return ask.status();
  if (ask->job != channel_->job().token) return OfAnotherJob(channel_->job().rank);
  const tensorflow::StringPiece bytes = tensor.tensor_data();
  answer->size = bytes.size();
  auto done = [sent = std::move(sent), rank = static_cast<int>(ask->rank),
               watches = std::weak_ptr<Watches>(watches_)](const Status& ended) {
    if (!ended.ok()) {
      // The receiver waits for what was announced. Not in MPI's thread, which has more to do.
      RunLater([watches, rank, ended] {
        if (const auto all = watches.lock()) all->Fail(rank, ToTensorFlow(ended));
      });
    }
    if (sent) sent(ended);
  };
  return channel_->SendAnnounced(static_cast<int>(ask->rank), static_cast<int>(ask->tag),
                                 bytes.data(), bytes.size(), std::make_shared<Tensor>(tensor),
                                 std::move(done));
}

tensorflow::Status MpiTensorChannel::Encode(const tensorflow::RecvTensorRequest& request,
                                            bool is_dead, const Tensor& tensor, bool require_ack,
                                            ::grpc::ByteBuffer* response) {
  const google::protobuf::Any& options = request.transport_options();
  if (is_dead || !GoesByMpi(tensor) || options.type_url() != mpi::Ask::kType) {
    return TensorChannel::Encode(request, is_dead, tensor, require_ack, response);
  }
  mpi::Sent answer;
  TF_RETURN_IF_ERROR(ToTensorFlow(Send(options, tensor, nullptr, &answer)));
  tensorflow::RecvTensorResponse message;
  message.mutable_tensor()->set_dtype(tensor.dtype());
  tensor.shape().AsProto(message.mutable_tensor()->mutable_tensor_shape());
  message.set_require_ack(require_ack);
  message.set_send_start_micros(tensorflow::Env::Default()->NowMicros());
  Pack(answer, message.mutable_transport_options());
  tensorflow::grpc::EncodeRecvTensorResponseToByteBuffer(message, response);
  return tensorflow::OkStatus();
}

bool MpiTensorChannel::OfferBuffer(const tensorflow::RecvBufRequest& request, const Tensor& tensor,
                                   tensorflow::StatusCallback sent,
                                   tensorflow::RecvBufResponse* response,
                                   tensorflow::Status* status) {
  const google::protobuf::Any& options = request.transport_options();
  if (sent == nullptr || !GoesByMpi(tensor) || options.type_url() != mpi::Ask::kType) {
    if (sent != nullptr && GoesByMpi(tensor) && IsHostMemory(request)) notice_.SentToOther(request);
    return TensorChannel::OfferBuffer(request, tensor, nullptr, response, status);
  }
  mpi::Sent answer;
  mpi::Done ended;
  if (sent) {
    ended = [sent = std::move(sent), task = TaskOf(request)](const Status& how) {
      sent(task.empty() ? ToTensorFlow(how) : OfTransfer(how, task));
    };
  }
  *status = ToTensorFlow(Send(options, tensor, std::move(ended), &answer));
  if (!status->ok()) return false;
  Pack(answer, response->mutable_transport_options());
  return true;
}

}  // namespace ar_grpc
