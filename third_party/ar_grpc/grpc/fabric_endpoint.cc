// Copyright 2026 The AR-gRPC TensorFlow authors. Licensed under the Apache License, Version 2.0.

#include "third_party/ar_grpc/grpc/fabric_endpoint.h"

#include <grpc/slice_buffer.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/core/lib/gprpp/ref_counted.h"
#include "src/core/lib/gprpp/status_helper.h"
#include "src/core/lib/gprpp/sync.h"
#include "src/core/lib/iomgr/closure.h"
#include "src/core/lib/iomgr/error.h"
#include "src/core/lib/iomgr/ev_posix.h"
#include "src/core/lib/iomgr/exec_ctx.h"
#include "src/core/lib/iomgr/executor.h"
#include "src/core/lib/resource_quota/memory_quota.h"
#include "src/core/lib/resource_quota/resource_quota.h"
#include "src/core/lib/slice/slice.h"
#include "third_party/ar_grpc/grpc/slice_cursor.h"
#include "third_party/ar_grpc/grpc/spin.h"

namespace ar_grpc {
namespace {

// What gRPC reads large messages into; patches/grpc keeps the pages of blocks of this size.
constexpr size_t kReadBlock = 64 * 1024;
// What a read gives at once, at most, however large the ring is that the peer made.
constexpr size_t kMostRead = size_t{1} << 20;
// Messages that one turn takes; a peer that sends more does not keep a poller.
constexpr size_t kMostMessages = 256;
// So often are they taken for the last time: what a ring has room for, many times over.
constexpr int kLastTurns = 64;

// All gRPC errors of a connection say "unavailable", so that callers may retry.
absl::Status Unavailable(absl::string_view what, absl::string_view peer) {
  return grpc_error_set_int(GRPC_ERROR_CREATE(absl::StrCat(what, " (peer ", peer, ")")),
                            grpc_core::StatusIntProperty::kRpcStatus, GRPC_STATUS_UNAVAILABLE);
}

// The endpoint over a fabric.
//
// Two closures are always under way and hold a reference each: `on_wake_` waits for the link's
// descriptor, `on_tcp_` for the end of TCP. What is guarded by mu_ changes in gRPC's own threads
// only. No callback runs under mu_: those of gRPC are queued (ExecCtx), what is let go is
// destroyed, and the link taken off the node, once mu_ is free (Afterwards).
class FabricEndpoint
    : public grpc_endpoint,
      public grpc_core::RefCounted<FabricEndpoint, grpc_core::NonPolymorphicRefCount> {
 public:
  FabricEndpoint(std::shared_ptr<protocol::Node> node, std::shared_ptr<protocol::Link> link,
                 grpc_endpoint* tcp, int wake_fd, grpc_pollset_set* interested_parties,
                 const grpc_core::ChannelArgs& args)
      : node_(std::move(node)),
        link_(std::move(link)),
        tcp_(tcp),
        wake_(grpc_fd_create(wake_fd, "ar_grpc", /*track_err=*/false)),
        memory_(args.GetObjectRef<grpc_core::ResourceQuota>()->memory_quota()->CreateMemoryOwner(
            grpc_endpoint_get_peer(tcp))) {
    static const grpc_endpoint_vtable kVtable = {
        [](grpc_endpoint* ep, grpc_slice_buffer* slices, grpc_closure* cb, bool, int) {
          Self(ep)->Read(slices, cb);
        },
        [](grpc_endpoint* ep, grpc_slice_buffer* slices, grpc_closure* cb, void*, int) {
          Self(ep)->Write(slices, cb);
        },
        [](grpc_endpoint* ep, grpc_pollset* pollset) { Self(ep)->AddTo(pollset); },
        [](grpc_endpoint* ep, grpc_pollset_set* set) {
          grpc_endpoint_add_to_pollset_set(Self(ep)->tcp_, set);
          grpc_pollset_set_add_fd(set, Self(ep)->wake_);
        },
        [](grpc_endpoint* ep, grpc_pollset_set* set) {
          grpc_endpoint_delete_from_pollset_set(Self(ep)->tcp_, set);
          grpc_pollset_set_del_fd(set, Self(ep)->wake_);
        },
        [](grpc_endpoint* ep, grpc_error_handle why) { Self(ep)->Shutdown(why); },
        [](grpc_endpoint* ep) {
          Self(ep)->Shutdown(GRPC_ERROR_CREATE("endpoint destroyed"));
          Self(ep)->Unref();
        },
        [](grpc_endpoint* ep) { return grpc_endpoint_get_peer(Self(ep)->tcp_); },
        [](grpc_endpoint* ep) { return grpc_endpoint_get_local_address(Self(ep)->tcp_); },
        [](grpc_endpoint* ep) { return grpc_endpoint_get_fd(Self(ep)->tcp_); },
        [](grpc_endpoint*) { return false; },
    };
    vtable = &kVtable;
    SpinFor(wake_fd);
    grpc_slice_buffer_init(&tcp_bytes_);
    if (interested_parties != nullptr) grpc_pollset_set_add_fd(interested_parties, wake_);
    GRPC_CLOSURE_INIT(
        &on_wake_,
        [](void* self, grpc_error_handle error) {
          static_cast<FabricEndpoint*>(self)->OnWake(error);
        },
        this, nullptr);
    GRPC_CLOSURE_INIT(
        &on_tcp_,
        [](void* self, grpc_error_handle error) {
          static_cast<FabricEndpoint*>(self)->OnTcp(error);
        },
        this, nullptr);
    GRPC_CLOSURE_INIT(
        &on_more_,
        [](void* self, grpc_error_handle) { static_cast<FabricEndpoint*>(self)->OnMore(); }, this,
        nullptr);
    Ref().release();
    grpc_fd_notify_on_read(wake_, &on_wake_);
    Ref().release();
    grpc_endpoint_read(tcp_, &tcp_bytes_, &on_tcp_, /*urgent=*/false, /*min_progress_size=*/1);
  }

  ~FabricEndpoint() {
    SpinNoMoreFor(grpc_fd_wrapped_fd(wake_));
    grpc_fd_orphan(wake_, nullptr, nullptr, "ar_grpc endpoint");
    grpc_slice_buffer_destroy(&tcp_bytes_);
    grpc_endpoint_destroy(tcp_);
  }

 private:
  // What is done when mu_ is free again: made before it is taken.
  class Afterwards {
   public:
    explicit Afterwards(FabricEndpoint* endpoint) : endpoint_(endpoint) {}
    ~Afterwards() {
      if (remove_link) endpoint_->node_->RemoveLink(endpoint_->link_);
    }

    std::vector<protocol::Offers::Held> released;
    bool remove_link = false;

   private:
    FabricEndpoint* const endpoint_;
  };

  static FabricEndpoint* Self(grpc_endpoint* endpoint) {
    return static_cast<FabricEndpoint*>(endpoint);
  }

  void AddTo(grpc_pollset* pollset) {
    // A server's completion queues are polled as long as it lives, so one of them is enough, the
    // one that accepted the connection: with more, each event makes the queues' threads wake each
    // other to take turns at the descriptor.
    if (link_->end() == protocol::End::kServer && polled_.exchange(true)) return;
    grpc_endpoint_add_to_pollset(tcp_, pollset);
    grpc_pollset_add_fd(pollset, wake_);
  }

  void Read(grpc_slice_buffer* slices, grpc_closure* done) {
    grpc_slice_buffer_reset_and_unref(slices);
    Afterwards afterwards(this);
    grpc_core::MutexLock lock(&mu_);
    GPR_ASSERT(read_done_ == nullptr);
    read_slices_ = slices;
    read_done_ = done;
    // Nothing is given after a shutdown, though bytes may have arrived before it.
    if (shutdown_) return FinishRead(end_);
    ServeIncoming(&afterwards);
  }

  void Write(grpc_slice_buffer* slices, grpc_closure* done) {
    grpc_core::MutexLock lock(&mu_);
    GPR_ASSERT(write_done_ == nullptr);
    unwritten_.Start(slices);
    write_done_ = done;
    TryWrite();
  }

  void Shutdown(grpc_error_handle why) {
    Afterwards afterwards(this);
    grpc_core::MutexLock lock(&mu_);
    if (shutdown_) return;
    shutdown_ = true;
    end_ = why;
    TakeLastMessages(&afterwards);
    afterwards.remove_link = true;
    grpc_fd_shutdown(wake_, why);
    grpc_endpoint_shutdown(tcp_, why);
    FinishRead(why);
    FinishWrite(why);
  }

  void OnWake(grpc_error_handle error) {
    bool again = false;
    {
      Afterwards afterwards(this);
      grpc_core::MutexLock lock(&mu_);
      if (error.ok() && !shutdown_) {
        link_->connection()->ClearWake();
        ServeIncoming(&afterwards);
        TryWrite();
        (void)link_->FlushMessages().ok();
        again = true;
      }
    }
    if (again) {
      grpc_fd_notify_on_read(wake_, &on_wake_);
    } else {
      Unref();
    }
  }

  void OnTcp(grpc_error_handle error) {
    {
      Afterwards afterwards(this);
      grpc_core::MutexLock lock(&mu_);
      if (end_.ok()) {
        end_ = error.ok() ? Unavailable("the peer wrote to TCP after it had left it", Peer())
                          : Unavailable(absl::StrCat("the peer's process closed the connection, "
                                                     "or its host is gone: ",
                                                     grpc_core::StatusToString(error)),
                                        Peer());
      }
      // Nothing is read by the peer any more; what it wrote before can still be read here.
      TakeLastMessages(&afterwards);
      afterwards.remove_link = true;
      ServeIncoming(&afterwards);
      TryWrite();
    }
    Unref();
  }

  // What was left by a turn that took its share.
  void OnMore() {
    {
      Afterwards afterwards(this);
      grpc_core::MutexLock lock(&mu_);
      more_scheduled_ = false;
      if (!shutdown_) ServeIncoming(&afterwards);
    }
    Unref();
  }

  // Takes messages that have come, also while nobody reads the stream or it has always something to
  // read, and gives the stream's bytes to who reads. Sleeps only when both are empty.
  void ServeIncoming(Afterwards* afterwards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    fabric::Connection* const connection = link_->connection();
    size_t budget = kMostMessages;
    for (;;) {
      const size_t taken = TakeMessages(budget, afterwards);
      StatusOr<size_t> readable = connection->Readable();
      if (!readable.ok()) {
        return FinishRead(end_.ok() ? Unavailable(readable.status().message(), Peer()) : end_);
      }
      // Each turn costs something, whatever the peer writes into the memory of both.
      budget -= std::min(budget, std::max<size_t>(taken, 1));
      if (*readable > 0) {
        if (budget == 0) ServeMoreSoon();
        if (read_done_ == nullptr) return;  // the next read does
        SpinFromNow();
        return FinishRead(Fill(std::min(*readable, kMostRead)));
      }
      if (!end_.ok()) return FinishRead(end_);
      if (budget == 0) return ServeMoreSoon();
      // The wake-up is asked for both, stream and messages, so both have been looked at.
      StatusOr<bool> armed = connection->ArmRead();
      if (!armed.ok()) {
        if (end_.ok()) end_ = Unavailable(armed.status().message(), Peer());
        continue;
      }
      if (*armed) return;
    }
  }

  // Takes up to `most` and returns how many came.
  size_t TakeMessages(size_t most, Afterwards* afterwards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    size_t taken = 0;
    const Status status = node_->TakeMessages(link_.get(), most, &afterwards->released, &taken);
    if (!status.ok() && end_.ok()) end_ = Unavailable(status.message(), Peer());
    return taken;
  }

  // Before the link is closed: another link of the same peer keeps what this one does not release.
  void TakeLastMessages(Afterwards* afterwards) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    for (int turn = 0; turn < kLastTurns; ++turn) {
      if (TakeMessages(kMostMessages, afterwards) < kMostMessages) return;
    }
  }

  // In another thread, so that this one goes back to its poller.
  void ServeMoreSoon() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (std::exchange(more_scheduled_, true)) return;
    Ref().release();
    grpc_core::Executor::Run(&on_more_, absl::OkStatus());
  }

  absl::Status Fill(size_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (size > 0) {
      grpc_slice slice = memory_.MakeSlice(grpc_core::MemoryRequest(std::min(size, kReadBlock)));
      StatusOr<size_t> got =
          link_->connection()->Read(GRPC_SLICE_START_PTR(slice), GRPC_SLICE_LENGTH(slice));
      if (!got.ok() || *got == 0) {
        grpc_core::CSliceUnref(slice);
        return Unavailable(got.ok() ? "the stream shrank" : got.status().message(), Peer());
      }
      GRPC_SLICE_SET_LENGTH(slice, *got);
      grpc_slice_buffer_add_indexed(read_slices_, slice);
      size -= std::min(size, *got);
    }
    return absl::OkStatus();
  }

  void TryWrite() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    while (write_done_ != nullptr) {
      if (!end_.ok()) return FinishWrite(end_);
      SliceCursor::Parts parts;
      const int count = unwritten_.Next(&parts);
      if (count == 0) return FinishWrite(absl::OkStatus());
      StatusOr<size_t> wrote = link_->Write(parts.data(), count);
      if (!wrote.ok()) return FinishWrite(Unavailable(wrote.status().message(), Peer()));
      unwritten_.Advance(*wrote);
      SpinFromNow();
      if (*wrote > 0) continue;
      StatusOr<bool> armed = link_->ArmWrite();
      if (!armed.ok()) return FinishWrite(Unavailable(armed.status().message(), Peer()));
      if (*armed) return;
    }
  }

  void FinishRead(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Run(&read_done_, std::move(status));
  }
  void FinishWrite(absl::Status status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Run(&write_done_, std::move(status));
  }
  static void Run(grpc_closure** done, absl::Status status) {
    if (*done == nullptr) return;
    grpc_core::ExecCtx::Run(DEBUG_LOCATION, std::exchange(*done, nullptr), std::move(status));
  }

  absl::string_view Peer() const { return grpc_endpoint_get_peer(tcp_); }

  const std::shared_ptr<protocol::Node> node_;
  const std::shared_ptr<protocol::Link> link_;
  grpc_endpoint* const tcp_;
  grpc_fd* const wake_;
  grpc_core::MemoryOwner memory_;
  grpc_slice_buffer tcp_bytes_;
  grpc_closure on_wake_;
  grpc_closure on_tcp_;
  grpc_closure on_more_;
  // Whether a pollset has it; looked at for servers only.
  std::atomic<bool> polled_{false};
  grpc_core::Mutex mu_;
  bool shutdown_ ABSL_GUARDED_BY(mu_) = false;
  bool more_scheduled_ ABSL_GUARDED_BY(mu_) = false;
  // Why the connection is over; OK while it is not.
  absl::Status end_ ABSL_GUARDED_BY(mu_);
  grpc_slice_buffer* read_slices_ ABSL_GUARDED_BY(mu_) = nullptr;
  grpc_closure* read_done_ ABSL_GUARDED_BY(mu_) = nullptr;
  SliceCursor unwritten_ ABSL_GUARDED_BY(mu_);
  grpc_closure* write_done_ ABSL_GUARDED_BY(mu_) = nullptr;
};

}  // namespace

grpc_endpoint* NewFabricEndpoint(std::shared_ptr<protocol::Node> node,
                                 std::shared_ptr<protocol::Link> link, grpc_endpoint* tcp,
                                 int wake_fd, grpc_pollset_set* interested_parties,
                                 const grpc_core::ChannelArgs& args) {
  return grpc_core::MakeRefCounted<FabricEndpoint>(std::move(node), std::move(link), tcp, wake_fd,
                                                   interested_parties, args)
      .release();
}

}  // namespace ar_grpc
